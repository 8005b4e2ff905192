package perf

import "github.com/goroce/goroce/ib"

// The Go client does over daemons what the programs do: it polls, and asks for a completion of each request.

func clientWrite(size int, memory string) Job {
	j := stream(ib.WRWrite, size)
	j.Memory = memory
	return j
}

func clientPing(memory string) Job {
	return Job{Kind: "pingpong", Op: ib.WRSend, Size: pingSize, Depth: depth, Memory: memory}
}

// The programs as they come, and how much they send where that is not by time.

func writeBW(size int, memory string) Job {
	return Job{Kind: "dropin", Tool: "ib_write_bw", Size: size, Memory: memory}
}

func sendLat(memory string) Job {
	return Job{Kind: "dropin", Tool: "ib_send_lat", Size: pingSize, Messages: 10_000, Memory: memory}
}

// costOf is j in two runs, for what a number of messages costs.
func costOf(j Job, messages int) Job {
	j.Kind, j.Messages = "cost", messages
	return j
}

// traced is costOf in system calls.
func traced(j Job, messages int) Job {
	j = costOf(j, messages)
	j.Trace = true
	return j
}

// Names of rows that bars of these rows refer to.
const (
	polled64K     = "RC WRITE 64 KiB, daemons, memfd, polling"
	polledCPU     = "CPU of RC WRITE 64 KiB, daemons, memfd, polling"
	dropinCPU     = "CPU of ib_write_bw 64 KiB, dropin, memfd"
	served8       = "RC WRITE 8 B, daemons, memfd"
	dropin8Own    = "ib_write_bw 8 B, dropin, process memory"
	servedPing    = "RC SEND 8 B, ping-pong, daemons, memfd"
	servedPingOwn = "RC SEND 8 B, ping-pong, daemons, process memory"
)

// noCalls is no system call for a message, beside those few by which two runs of a program may differ.
const noCalls = 0.001

// dropinRows are programs in C over daemons, and the Go client as their yardstick.
var dropinRows = []Row{
	{Name: polled64K, Unit: gbps, Measure: pair(clientWrite(64<<10, memfd))},
	{Name: "ib_write_bw 64 KiB, dropin", Unit: gbps, Bars: []Bar{least(0.95, polled64K)},
		Measure: pair(writeBW(64<<10, asItIs))},
	{Name: "ib_write_bw 64 KiB, dropin, memfd", Unit: gbps, Bars: []Bar{least(0.95, polled64K)},
		Measure: pair(writeBW(64<<10, memfd))},
	{Name: "ib_write_bw 64 KiB, dropin, process memory", Unit: gbps, Measure: pair(writeBW(64<<10, processMemory))},

	{Name: polledCPU, Unit: cpuPerGB, On: firstMTU, Measure: pair(clientWrite(64<<10, memfd))},
	{Name: dropinCPU, Unit: cpuPerGB, On: firstMTU, Measure: pair(costOf(writeBW(64<<10, memfd), 16<<10))},
	{Name: "CPU of ib_write_bw 64 KiB, dropin", Unit: cpuPerGB, On: firstMTU,
		Bars:    []Bar{most(1.15, dropinCPU), most(1.4, polledCPU)},
		Measure: pair(costOf(writeBW(64<<10, asItIs), 16<<10))},
	{Name: "CPU of ib_write_bw 64 KiB, dropin, process memory", Unit: cpuPerGB, On: firstMTU,
		Measure: pair(costOf(writeBW(64<<10, processMemory), 16<<10))},

	{Name: served8, Unit: mmps, On: firstMTU, Measure: pair(clientWrite(8, memfd))},
	{Name: "ib_write_bw 8 B, dropin", Unit: mmps, On: firstMTU, Bars: []Bar{least(0.9, served8)},
		Measure: pair(writeBW(8, asItIs))},
	{Name: dropin8Own, Unit: mmps, On: firstMTU, Measure: pair(writeBW(8, processMemory))},
	{Name: "RC WRITE 8 B, daemons, process memory", Unit: mmps, On: firstMTU, Bars: []Bar{least(0.9, dropin8Own)},
		Measure: pair(clientWrite(8, processMemory))},
	{Name: "ib_write_bw 8 B, dropin, memfd", Unit: mmps, On: firstMTU, Bars: []Bar{least(0.9, served8)},
		Measure: pair(writeBW(8, memfd))},

	{Name: servedPing, Unit: us, On: firstMTU, Measure: pair(clientPing(memfd))},
	{Name: servedPingOwn, Unit: us, On: firstMTU, Measure: pair(clientPing(processMemory))},
	{Name: "ib_send_lat 8 B, dropin", Unit: us, On: firstMTU, Bars: []Bar{most(1.15, servedPing)},
		Measure: pair(sendLat(asItIs))},
	{Name: "ib_send_lat 8 B, dropin, process memory", Unit: us, On: firstMTU, Bars: []Bar{most(1.15, servedPingOwn)},
		Measure: pair(sendLat(processMemory))},
	{Name: "ib_send_lat 8 B, dropin, memfd", Unit: us, On: firstMTU, Bars: []Bar{most(1.15, servedPing)},
		Measure: pair(sendLat(memfd))},

	{Name: "system calls of ib_write_bw 64 KiB, dropin", Unit: callsEach, On: firstMTU, Bars: []Bar{most(noCalls, "")},
		Measure: pair(traced(writeBW(64<<10, asItIs), 10_000))},
	{Name: "system calls of ib_send_lat 8 B, dropin", Unit: callsEach, On: firstMTU, Bars: []Bar{most(noCalls, "")},
		Measure: pair(traced(sendLat(asItIs), 5_000))},
}
