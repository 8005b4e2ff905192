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
		two: "mpirun.openmpi -n 2 --host {server},{client} --mca plm_rsh_agent {dir}/agent --mca " +
			"plm_rsh_no_tree_spawn 1 " +
			"--mca oob_tcp_if_include eth0 ",
	}
	mpich = launcher{
		one: "mpirun.mpich -n 2 ",
		two: "mpirun.mpich -n 2 -hosts {server},{client} -launcher rsh -launcher-exec {dir}/agent -iface eth0 ",
	}
)

// Options that keep MPI to the device.
const (
	ompiUCX = "--mca pml ucx --mca osc ucx --mca btl ^openib,vader,tcp,uct --mca pml_ucx_tls any --mca " +
		"pml_ucx_devices any " +
		"-x UCX_TLS=rc_v,self "
	ompiOFI = "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm' --mca btl " +
		"^openib,vader,tcp,uct " +
		"--mca osc ^ucx "
	mpichUCX = "-genv UCX_TLS rc_v,self -genv MPIR_CVAR_NOLOCAL 1 "
)

// mpiRows returns a row for each place. .ci/run plays that of one place, or none if ci is 0: ranks take all processors.
func mpiRows(l launcher, options, setup, command, says string, ci place) []row {
	r := row{setup: setup, says: says, program: program(command), limit: 5 * time.Minute, network: true}
	one, two := r, r
	one.client, one.only, one.ci = l.one+options+command, oneHost, ci == oneHost
	two.client, two.only, two.ci, two.root = l.two+options+command, twoHosts, ci == twoHosts, true
	return []row{one, two}
}

var openMPIFamily = &family{name: "Open MPI", from: []string{"netpipe-openmpi", "openmpi-bin"}, rows: join(
	mpiRows(openMPI, ompiUCX, "", "NPopenmpi -u 65536 -n 20", `Completed with|Mbps`, twoHosts),
	mpiRows(openMPI, ompiOFI, "", "NPopenmpi -u 65536 -n 20", `Completed with|Mbps`, 0),
)}

var mpichFamily = &family{name: "MPICH", from: []string{"netpipe-mpich2", "mpich"}, rows: join(
	mpiRows(mpich, mpichUCX, "", "NPmpich2 -u 65536 -n 20", `Completed with|Mbps`, oneHost),
)}

// join makes one list of lists.
func join(lists ...[]row) (all []row) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

const (
	starpuDir    = "/usr/lib/x86_64-linux-gnu/starpu/mpi/"
	scalapackDir = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/"
	starpuEnv    = "-x STARPU_NCPU=1 -x STARPU_HOME={dir} -x STARPU_SILENT=1 "
)

// ucxRows returns a program's rows over Open MPI and UCX.
func ucxRows(options, setup, command, says string) []row {
	return mpiRows(openMPI, ompiUCX+options, setup, command, says, 0)
}

var hpcc = &family{name: "HPC Challenge", from: []string{"hpcc"}, rows: ucxRows("--wdir {dir} ",
	"sed -e '6s/1000/200/' -e '11s/2/1/' /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt", "hpcc", ``)}

var mpi4py = &family{name: "mpi4py", from: []string{"python3-mpi4py"}, rows: named("mpi4py.bench", join(
	ucxRows("", "", "/usr/bin/python3 -m mpi4py.bench helloworld", `(?s)process 0 of 2.*process 1 of 2`),
	ucxRows("", "", "/usr/bin/python3 -m mpi4py.bench ringtest -n 65536 -l 20", `time for 20 loops`),
))}

var rubyMPI = &family{name: "Ruby MPI", from: []string{"ruby-mpi"}, rows: named("hello.rb",
	ucxRows("", "", "ruby /usr/share/doc/ruby-mpi/examples/hello.rb", `(?i)hello`))}

var starpu = &family{name: "StarPU", from: []string{"starpu-examples"}, rows: join(
	ucxRows(starpuEnv, "", starpuDir+"mpi_cholesky -size 960 -nblocks 4", ``),
	ucxRows(starpuEnv, "", starpuDir+"mpi_complex", ``),
	ucxRows(starpuEnv, "", starpuDir+"stencil5", ``),
	ucxRows(starpuEnv, "", starpuDir+"user_datatype", ``),
	ucxRows(starpuEnv, "", starpuDir+"cache", ``),
)}

// scalapackRows returns a row of ScaLAPACK's own tests.
func scalapackRows(test string) []row {
	return ucxRows("--wdir "+scalapackDir+" ", "", scalapackDir+test, `(?m)^ +0 tests completed and failed`)
}

var scalapack = &family{name: "ScaLAPACK", from: []string{"scalapack-mpi-test"}, rows: join(
	scalapackRows("xdlu"), scalapackRows("xdqr"), scalapackRows("xdinv"))}

// named gives rows the name of a program.
func named(name string, rows []row) []row {
	for i := range rows {
		rows[i].program = name
	}
	return rows
}
