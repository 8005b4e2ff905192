// Package ib is the vocabulary that every part of goroce shares, and the seam
// between applications and devices.
//
// Values: [PSN], [QPN], [Key], [GID], [MTU], [Instant]. Work: [SendWR] and
// [RecvWR] go in, [WC] comes out. Attributes: [QPAttr] with its [QPAttrMask],
// [DeviceAttr], [PortAttr]. Errors: sentinels for errors.Is, and [AttrError],
// which names the attribute that was wrong.
//
// The interfaces in device.go ([Device], [PD], [MR], [CQ], [Channel], [QP]) are
// what an application holds. They follow the verbs of the InfiniBand
// architecture (IBTA volume 1, chapter 11) and their C form, libibverbs, in
// name and meaning; a verbs programmer should find nothing surprising.
//
// The package depends on the standard library only and does nothing by itself.
package ib
