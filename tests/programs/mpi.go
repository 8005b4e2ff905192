//go:build linux

package main

import "time"

// Programs over MPI. Each has two ranks: over one daemon, or over two, where the launchers reach both hosts by a script
// ({dir}/agent), for which they are root.

// launcher is a way to start two ranks: on one host, and on two.
type launcher struct{ one, two string }

var (
	openMPI = launcher{
		one: "mpirun.openmpi -n 2 --oversubscribe ",
		two: "mpirun.openmpi -n 2 --host {server},{client} --mca plm_rsh_agent {dir}/agent --mca plm_rsh_no_tree_spawn 1 " +
			"--mca oob_tcp_if_include eth0 ",
	}
	mpich = launcher{
		one: "mpirun.mpich -n 2 ",
		two: "mpirun.mpich -n 2 -hosts {server},{client} -launcher rsh -launcher-exec {dir}/agent -iface eth0 ",
	}
)

// Options that keep MPI to the device.
const (
	ompiUCX = "--mca pml ucx --mca osc ucx --mca btl ^openib,vader,tcp,uct --mca pml_ucx_tls any --mca pml_ucx_devices any " +
		"-x UCX_TLS=rc_v,self "
	ompiOFI = "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm' --mca btl ^openib,vader,tcp,uct " +
		"--mca osc ^ucx "
	mpichUCX = "-genv UCX_TLS rc_v,self -genv MPIR_CVAR_NOLOCAL 1 "
)

// mpiRows returns a row for each place.
func mpiRows(l launcher, options, setup, command, says string, ci bool) []row {
	r := row{setup: setup, says: says, program: program(command), ci: ci, limit: 2 * time.Minute, network: true}
	one, two := r, r
	one.client, one.only = l.one+options+command, oneHost
	two.client, two.only, two.root = l.two+options+command, twoHosts, true
	return []row{one, two}
}

var openMPIFamily = &family{name: "Open MPI", from: []string{"openmpi-bin", "libopenmpi3"}, rows: join(
	mpiRows(openMPI, ompiUCX, "", "NPopenmpi -u 65536 -n 20", `Completed with|Mbps`, true),
	mpiRows(openMPI, ompiOFI, "", "NPopenmpi -u 65536 -n 20", `Completed with|Mbps`, false),
)}

var mpichFamily = &family{name: "MPICH", from: []string{"mpich", "libmpich12"}, rows: join(
	mpiRows(mpich, mpichUCX, "", "NPmpich2 -u 65536 -n 20", `Completed with|Mbps`, true),
)}

// join makes one list of lists.
func join(lists ...[]row) (all []row) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

const starpu = "/usr/lib/x86_64-linux-gnu/starpu/mpi/"
const scalapack = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/"

var mpiPrograms = &family{name: "MPI programs", from: []string{"hpcc", "python3-mpi4py", "starpu-examples", "scalapack-mpi-test",
	"ruby-mpi"}, rows: join(
	mpiRows(openMPI, ompiUCX+"--wdir {dir} ", "cp /usr/share/doc/hpcc/examples/_hpccinf.txt hpccinf.txt",
		"hpcc", ``, false),
	mpiRows(openMPI, ompiUCX, "", "/usr/bin/python3 -m mpi4py.bench ringtest -n 65536 -l 20", `time for 20 loops`, false),
	mpiRows(openMPI, ompiUCX+"-x STARPU_NCPU=1 -x STARPU_HOME={dir} ", "", starpu+"mpi_cholesky -size 960 -nblocks 4", `.`, false),
	mpiRows(openMPI, ompiUCX+"-x STARPU_NCPU=1 -x STARPU_HOME={dir} ", "", starpu+"comm", ``, false),
	mpiRows(openMPI, ompiUCX+"--wdir "+scalapack+" ", "", scalapack+"xdlu", `tests completed and passed residual checks`, false),
	mpiRows(openMPI, ompiUCX, "", "ruby /usr/share/doc/ruby-mpi/examples/hello.rb", `(?i)hello`, false),
)}
