package main

// linuxCommands are the subcommands that need Linux.
type linuxCommands struct {
	Pingpong pingpongCmd  `cmd:"" help:"SEND messages back and forth, with another goroced or with rdma-core's ibv_*_pingpong."`
	Rping    rpingCmd     `cmd:"" help:"Ping by RDMA READ and WRITE over rdma_cm, with another goroced or with librdmacm's rping."`
	Rstream  rstreamCmd   `cmd:"" help:"Stream over rsockets and measure, with another goroced or with librdmacm's rstream and riostream."`
	Perf     perfCmd      `cmd:"" help:"Measure bandwidth or latency, with another goroced or with perftest's ib_*_bw and ib_*_lat."`
	Devinfo  devinfoCmd   `cmd:"" help:"Describe the RDMA device of this machine, like ibv_devinfo."`
	Devices  devicesCmd   `cmd:"" help:"List the devices of a running daemon, like ibv_devices."`
	Status   statusCmd    `cmd:"" help:"Show how a running daemon, its devices and their users are."`
	Why      whyCmd       `cmd:"" help:"Say why queue pairs of a running daemon's clients have failed."`
	QP       qpCmd        `cmd:"" name:"qp" help:"Show the queue pairs of a running daemon's clients, like rdma resource show qp."`
	MR       mrCmd        `cmd:"" name:"mr" help:"Show the memory regions of a running daemon's clients, like rdma resource show mr."`
	CM       cmCmd        `cmd:"" name:"cm" help:"Show the connection manager's IDs of a running daemon's clients, like rdma resource show cm_id."`
	Stat     statCmd      `cmd:"" help:"Show the counters of a running daemon."`
	Top      topCmd       `cmd:"" help:"Show what the queue pairs of a running daemon's clients do, as it happens."`
	Capture  captureCmd   `cmd:"" help:"Capture packets of a running daemon."`
	Watch    watchCmd     `cmd:"" help:"Explain the packets of a running daemon as they come."`
	Fault    faultCmd     `cmd:"" help:"Lose, delay, reorder, mark or damage packets of a running daemon, to test applications."`
	Run      runCmd       `cmd:"" help:"Run a program in C that uses libibverbs, as it is, over the daemon."`
	Env      envCmd       `cmd:"" help:"Print the environment variables by which programs in C use the daemon."`
	Spawn    spawnCmd     `cmd:"" hidden:"" help:"Start a daemon for run."`
	Serve    serveCmd     `cmd:"" help:"Run the daemon: RDMA for every process on this machine."`
	Stop     stopCmd      `cmd:"" help:"End a running daemon, as SIGTERM does."`
	Config   configCmd    `cmd:"" help:"Check or show the daemon's configuration."`
	Report   bugreportCmd `cmd:"" name:"bugreport" help:"Write what somebody who is to find a fault asks for first to a file."`
	Doctor   doctorCmd    `cmd:"" help:"Find out what prevents RDMA from working on this machine, and what to do."`
}
