//go:build linux

package main

import (
	"strings"
	"time"
)

// cephConf has all messengers of a small cluster use RDMA: a monitor, and an OSD that keeps objects in memory.
var cephConf = "printf '%s\\n' '" + strings.Join([]string{
	"[global]", "fsid = 5a8d5a4e-0c0e-4c3b-9a55-6a3f2a1b7c11", "mon host = [v2:{server}:3300,v1:{server}:6789]",
	"mon data = {dir}/mon", "osd data = {dir}/osd", "osd objectstore = memstore", "memstore device bytes = 1073741824",
	"auth cluster required = none", "auth service required = none", "auth client required = none",
	"ms type = async+rdma", "ms async rdma device name = {device}", "ms async rdma receive buffers = 1024",
	"ms async rdma support srq = true",
	"ms async rdma send buffers = 512", "ms async rdma receive queue len = 256", "ms async op threads = 1",
	"run dir = {dir}", "log file = {dir}/$name.log",
	"admin socket = {dir}/$name.$pid.asok", "osd pool default size = 1", "mon allow pool size one = true",
	"osd crush chooseleaf type = 0", "mon data avail crit = 1"}, "' '") + "' >ceph.conf; "

const cephCluster = "export CEPH_CONF={dir}/ceph.conf; " +
	"monmaptool --create --addv a [v2:{server}:3300,v1:{server}:6789] --fsid " +
	"5a8d5a4e-0c0e-4c3b-9a55-6a3f2a1b7c11 monmap; " +
	"mkdir mon osd; ceph-mon --mkfs -i a --monmap monmap; ceph-mon -i a -f & " +
	"until timeout 10 ceph osd new 11111111-2222-3333-4444-555555555555; do sleep 1; done; " +
	"ceph-osd -i 0 --mkfs --osd-uuid 11111111-2222-3333-4444-555555555555; ceph-osd -i 0 -f & " +
	"until timeout 10 ceph osd stat | grep '1 up'; do sleep 1; done; timeout 10 ceph osd pool create p 8; echo " +
	"made; wait"

var ceph = &family{name: "Ceph", from: []string{"ceph-common", "ceph-mon", "ceph-osd"}, rows: []row{
	{setup: cephConf + "true", server: cephCluster,
		client:  "CEPH_CONF={dir}/ceph.conf timeout 60 rados -p p bench 3 write -b 16384",
		program: "ceph-mon, ceph-osd, ceph, rados", says: "Total writes made: +[1-9]", ready: "(?m)^made", stays: true,
		root: true, only: oneHost, limit: 3 * time.Minute},
}}
