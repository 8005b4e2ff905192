package perf

import (
	"fmt"
	"strconv"
	"strings"
)

// tool is a program of perftest: its options beside those that all have, and what its table says. With these options
// it does what the Go client's kinds do.
type tool struct {
	options []string
	result  func(line []float64, j *Job) Result
}

// tools are the programs. The bandwidth tools ask for a completion of each request, as stream does (-Q 1), and do not
// look for a peak (-N).
var tools = map[string]tool{
	"ib_write_bw": {[]string{"-t", strconv.Itoa(depth), "-Q", "1", "-N"}, bandwidth},
	"ib_send_lat": {nil, latency},
}

// bandwidth reads size, messages, peak, average and million messages a second.
func bandwidth(line []float64, j *Job) Result {
	r := Result{Messages: line[1], Seconds: line[1] / (line[4] * 1e6)}
	return r.of(j.Size, packets(j.Size, pathMTU(j.MTU)))
}

// latency reads size, round trips, and the least, greatest and typical half of one in us. Of the quantiles there is the
// median only, and the time is that of typical round trips.
func latency(line []float64, j *Job) Result {
	r := Result{Messages: line[1], Seconds: line[1] * 2 * line[4] / 1e6, Latency: []float64{line[4]}}
	return r.of(2*j.Size, 2)
}

// parse returns the result that the tool has printed.
func (t tool) parse(out string, j *Job) (Result, error) {
	line, err := perftestLine(out)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", j.Tool, err)
	}
	return t.result(line, j), nil
}

// perftestColumns is how many columns are read.
const perftestColumns = 5

// perftestLine returns the numbers of the first line of a tool's table.
func perftestLine(out string) ([]float64, error) {
	_, table, _ := strings.Cut(out, "#bytes")
	_, table, _ = strings.Cut(table, "\n")
	line, _, _ := strings.Cut(table, "\n")
	fields := strings.Fields(line)
	if len(fields) < perftestColumns {
		return nil, fmt.Errorf("there is no line of numbers in\n%s", strings.TrimSpace(out))
	}
	numbers := make([]float64, min(len(fields), perftestColumns)) // those behind may be "-nan"
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.ParseFloat(fields[i], 64); err != nil {
			return nil, fmt.Errorf("the line %q: %w", line, err)
		}
	}
	return numbers, nil
}

// straceCalls returns the number of system calls that `strace -c -U calls` has printed, but for write, by which a
// program rings its daemon's doorbell when that sleeps.
func straceCalls(out string) (int, error) {
	doorbells := 0
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 2 || f[1] != "write" && f[1] != "total" {
			continue
		}
		n, err := strconv.Atoi(f[0])
		if f[1] == "total" || err != nil {
			return n - doorbells, err
		}
		doorbells = n
	}
	return 0, fmt.Errorf("strace printed no total:\n%s", strings.TrimSpace(out))
}
