// Package ib defines the API between applications and devices, and the values that every part of goroce uses.
//
// Values: [PSN], [QPN], [Key], [GID], [MTU], [Instant]. Work: an application posts [SendWR] and [RecvWR] and polls
// [WC]. Attributes: [QPAttr] with its [QPAttrMask], [DeviceAttr], [PortAttr]. Errors: sentinels for errors.Is, and
// [AttrError], which names the attribute that was refused.
//
// The interfaces in device.go ([Device], [PD], [MR], [CQ], [Channel], [QP]) are the objects of an application. They
// follow the verbs of the InfiniBand architecture (IBTA volume 1, chapter 11) and their C form, libibverbs, in name and
// meaning. Only goroce's own devices implement them: they may get methods in any version. A test that stands in for an
// object embeds its interface. Subpackage driver has what implementers need.
//
// The package depends on the standard library only.
package ib
