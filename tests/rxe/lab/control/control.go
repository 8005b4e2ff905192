// Package control runs commands at the far end of a byte stream.
//
// The lab uses it over a virtio-serial port, so that commands for a guest do not
// depend on the network under test. One stream carries any number of commands at
// once:
//
//	lab (Client)                          guest (Serve)
//	request{ID, Args, Stdin, Timeout} ->
//	                                   <- reply{ID, Stdout} reply{ID, Stderr} ...
//	request{ID, Kill}                 ->  (only to end it early)
//	                                   <- reply{ID, Done, ExitCode}
//
// Messages are JSON values one after another. The guest's first reply, with ID
// 0, says that it is up. The duration of a command is limited twice: by a timer in
// the guest, and by the client, which closes the whole stream if the guest does not
// confirm a kill in time.
package control

import "time"

// request starts the command ID, or kills it.
type request struct {
	ID      uint64
	Args    []string      `json:",omitempty"`
	Stdin   []byte        `json:",omitempty"`
	Timeout time.Duration `json:",omitempty"`
	Kill    bool          `json:",omitempty"`
}

// reply carries output of the command ID, or its end.
type reply struct {
	ID       uint64
	Stdout   []byte `json:",omitempty"`
	Stderr   []byte `json:",omitempty"`
	Done     bool   `json:",omitempty"`
	ExitCode int    `json:",omitempty"`
	TimedOut bool   `json:",omitempty"`
	Error    string `json:",omitempty"` // the command could not be started
}

// readyID is the ID of the reply that says that the guest is up.
const readyID = 0
