//go:build linux

package main

// allFamilies has the tables, in the order of the page.
var allFamilies = []*family{ibverbsUtils, perftest, rdmacmUtils, diags, management, ucx, libfabric, fio, qperf, dapl,
	qemu,
	pyverbs, openMPIFamily, mpichFamily, hpcc, mpi4py, rubyMPI, starpu, scalapack, rsockets, iserFamily, ceph,
	storage, lookers}
