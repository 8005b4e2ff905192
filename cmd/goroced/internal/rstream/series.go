package rstream

import "fmt"

// test is a test, which has a row in the table.
type test struct {
	name       string
	size       int // bytes of a transfer
	transfers  int // in each direction of an iteration
	iterations int
}

// total returns how many transfers there are, in both directions together.
func (t *test) total() int64 { return 2 * int64(t.transfers) * int64(t.iterations) }

// connections returns the tests, grouped by connection.
func (o *Options) connections() [][]test {
	if o.Custom {
		return [][]test{{{"custom", o.Size, o.Transfers, o.Iterations}}}
	}
	var latency, bandwidth []test
	for _, size := range o.sizes() {
		n := count(size)
		if o.limit > 0 {
			n = min(n, o.limit)
		}
		latency = append(latency, test{fmt.Sprintf("%.4s_lat", sizeText(int64(size))), size, 1, n})
		bandwidth = append(bandwidth, test{fmt.Sprintf("%.4s_bw", sizeText(int64(size))), size, n, 1})
	}
	return [][]test{latency, bandwidth}
}

// sizes returns the sizes of the series: powers of two from 64 bytes on, and the sizes half way between them from 128
// bytes on.
func (o *Options) sizes() []int {
	if !o.AllSizes {
		return []int{1 << 6, 1 << 12, 1 << 16, 1 << 20}
	}
	sizes := []int{1 << 6}
	for power := 1 << 7; power <= 1<<22; power *= 2 {
		sizes = append(sizes, power, power+power/2)
	}
	return sizes
}

// count returns how many times the series transfer a size.
func count(size int) int {
	switch {
	case size >= 1<<20:
		return 100
	case size >= 1<<16:
		return 1000
	case size >= 1<<10:
		return 10_000
	}
	return 100_000
}

// largest returns the size of the largest transfer in bytes.
func largest(connections [][]test) (size int) {
	for _, tests := range connections {
		for _, t := range tests {
			size = max(size, t.size)
		}
	}
	return size
}
