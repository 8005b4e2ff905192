package perf

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// session is a test with a peer.
type session struct {
	o       *Options
	t       *traits
	meeting meeting
	cm      *cmMeeting // the same meeting, if it connects the queue pairs
	attr    ib.DeviceAttr
	port    ib.PortAttr
	table   []ib.GIDEntry
	gid     *ib.GIDEntry
	goroce  bool          // the peer is a goroce end
	agreed  bool          // the ends have told each other their options, and they fit
	visit   *visit        // server of clients in turn: the one who is served
	maxTime time.Duration // client of such a server: what it may take, 0 if not known
	began   time.Time
	cycle   int
	e       *endpoint
	report  Report
}

// greet agrees with the peer on versions and sizes.
func (s *session) greet() error {
	theirs := make([]byte, versionLen)
	if err := s.meeting.swap(encodeVersion(!s.o.mute), theirs, s.o.Timeout); err != nil {
		return err
	}
	text, goroce, talks, err := decodeVersion(theirs)
	if err != nil {
		return err
	}
	s.goroce = goroce
	switch {
	case talks && !s.o.mute:
		if err := s.settle(); err != nil {
			return err
		}
		s.agreed = true
	case s.visit != nil:
		return fmt.Errorf("%w: the client does not tell its options; for perftest's tools run `goroced perf OP TEST`",
			ErrExchange)
	}
	if text != version {
		fmt.Fprintf(s.o.Log, "the peer is perftest %s; this is made for %s, and may not agree with it\n", text, version)
	}
	if s.cycle, err = s.agree(minCycle, "page", 1, maxCycle); err != nil {
		return err
	}
	if room := s.room(); 2*s.o.NumQP > room/areaSize(s.o, s.cycle) {
		return driver.Refuse("perf", "NumQP", s.o.NumQP, fmt.Sprintf("at most %d, as the peer wants %d bytes for each",
			room/areaSize(s.o, s.cycle)/2, s.cycle), ib.ErrInvalid)
	}
	if _, err = s.agree(cacheLine, "cache line", 1, minCycle); err != nil {
		return err
	}
	if err := s.meeting.swap(encodeMTU(s.o.MTU), theirs[:2], s.o.Timeout); err != nil {
		return err
	}
	mtu, err := decodeMTU(theirs)
	if err != nil {
		return err
	}
	s.o.MTU = min(s.o.MTU, mtu)
	if s.o.datagrams() && s.o.Size > int(s.o.MTU) {
		return driver.Refuse("perf", "Size", s.o.Size, fmt.Sprintf("at most the peer's MTU of %d with UD", mtu),
			ib.ErrInvalid)
	}
	return nil
}

// room returns how much memory the messages may take.
func (s *session) room() int {
	if s.visit != nil {
		return s.visit.limits.Memory
	}
	return MaxSize
}

// agree swaps a size and returns the larger one.
func (s *session) agree(mine int, what string, lo, hi int) (int, error) {
	var msg [4]byte
	if err := s.meeting.swap(encodeInt(mine), msg[:], s.o.Timeout); err != nil {
		return 0, err
	}
	v, err := decodeInt(msg[:], what, lo, hi)
	return max(v, mine), err
}

// connect swaps the addresses of the queue pairs with the peer, and connects them.
func (s *session) connect() error {
	if s.cm != nil {
		if err := s.connectCM(); err != nil {
			return err
		}
	}
	if s.t.before {
		if err := s.swapAddress(0, s.o.Timeout); err != nil {
			return err
		}
	}
	if err := s.swapAddresses(); err != nil {
		return err
	}
	if s.cm == nil {
		if err := s.e.connect(s.gid.Index); err != nil {
			return err
		}
	}
	if s.t.between {
		if err := s.swapAddress(0, s.o.Timeout); err != nil {
			return err
		}
	}
	for i := range s.e.local {
		s.e.local[i].print(s.o.Out, "local", s.o)
	}
	if err := s.swapAddresses(); err != nil {
		return err
	}
	for i := range s.e.remote {
		s.e.remote[i].print(s.o.Out, "remote", s.o)
	}
	if s.t.after {
		return s.swapAddress(0, s.o.Timeout)
	}
	return nil
}

func (s *session) swapAddresses() error {
	for i := range s.e.local {
		if err := s.swapAddress(i, s.o.Timeout); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) swapAddress(i int, limit time.Duration) (err error) {
	mine := s.meeting.encode(&s.e.local[i])
	theirs := make([]byte, len(mine))
	if err := s.meeting.swap(mine, theirs, limit); err != nil {
		return err
	}
	s.e.remote[i], err = s.meeting.decode(theirs)
	return err
}

// step waits until the peer has come to the same step. There is no limit, because the peer may be running a test.
func (s *session) step() error { return s.swapAddress(0, 0) }

// play runs the test.
func (s *session) play(ctx context.Context) error {
	if s.o.passive() {
		return s.attend()
	}
	fmt.Fprint(s.o.Out, s.o.header())
	stop := s.showProgress()
	defer stop()
	for _, size := range s.o.sizes() {
		play := s.bandwidth
		if s.o.Test == Lat {
			play = s.latency
		}
		row, err := play(ctx, size)
		if err == nil || row.Iterations > 0 { // interrupted: what was measured so far
			s.add(row)
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprint(s.o.Out, s.o.rule())
	return s.finish()
}

// attend is the part of an end that only provides memory. It waits until the client is done, which then reports its
// bandwidth, but not its latency.
func (s *session) attend() error {
	if s.o.Test == BW {
		fmt.Fprint(s.o.Out, s.o.header())
		if err := s.step(); err != nil {
			return err
		}
		theirs, err := s.swapFigures(&Row{Bandwidth: &Bandwidth{}})
		if err != nil {
			return err
		}
		row, err := theirs.row()
		if err != nil {
			return err
		}
		s.add(row)
	}
	if err := s.step(); err != nil {
		return err
	}
	fmt.Fprint(s.o.Out, s.o.rule())
	return nil
}

// add adds a result.
func (s *session) add(row Row) {
	row.print(s.o.Out, s.o)
	s.report.Results = append(s.report.Results, row)
	if row.Lost > 0 {
		fmt.Fprintf(s.o.Log, "%d of %d messages of %d bytes were lost\n", row.Lost, row.Iterations+row.Lost, row.Size)
	}
}

// bandwidth runs one size, in step with a peer that takes part. If both ends send, they exchange their results; when
// they do so, and whether they wait for one another afterwards, differs between the C tools.
func (s *session) bandwidth(ctx context.Context, size int) (Row, error) {
	if err := s.e.restock(); err != nil {
		return Row{}, err
	}
	together := s.o.Op == Send || s.o.Bidirectional
	if together {
		if err := s.step(); err != nil {
			return Row{}, err
		}
	}
	row, err := s.e.transfer(ctx, size)
	if err != nil {
		return row, err
	}
	wait := together && s.o.All
	if wait && s.o.Op != Send {
		if err := s.step(); err != nil {
			return Row{}, err
		}
	}
	if s.o.Bidirectional && (s.o.Op != Send || s.o.Duration == 0) {
		theirs, err := s.swapFigures(&row)
		if err != nil {
			return Row{}, err
		}
		other, err := theirs.row()
		if err != nil {
			return Row{}, err
		}
		row.add(&other)
	}
	if wait && s.o.Op == Send {
		return row, s.step()
	}
	return row, nil
}

// latency runs one size.
func (s *session) latency(ctx context.Context, size int) (Row, error) {
	if s.o.Op == Send {
		if err := s.e.restock(); err != nil {
			return Row{}, err
		}
		if err := s.step(); err != nil {
			return Row{}, err
		}
	}
	return s.e.volley(ctx, size)
}

// finish ends the session in step with the peer, which may still need acknowledgements of this end. ib_write_lat has no
// message for that: it closes the connection.
func (s *session) finish() error {
	if s.t.memory && !s.goroce {
		s.meeting.leave(s.o.Timeout)
		return nil
	}
	if s.o.Test == BW && s.o.Op != Send && !s.o.Bidirectional {
		if err := s.step(); err != nil {
			return err
		}
		if _, err := s.swapFigures(&s.report.Results[len(s.report.Results)-1]); err != nil {
			return err
		}
	}
	return s.step()
}

// swapFigures sends the peer this end's result, and returns the peer's. Those of an end that has measured nothing mean
// nothing: ib_write_bw's server sends NaNs.
func (s *session) swapFigures(mine *Row) (theirs figures, err error) {
	for i, v := range mine.figures() {
		var msg [8]byte
		if err := s.meeting.swap(binary.BigEndian.AppendUint64(nil, v), msg[:], 0); err != nil {
			return figures{}, err
		}
		theirs[i] = binary.BigEndian.Uint64(msg[:])
	}
	return theirs, nil
}

// Intervals of progress messages: runs with a given duration that are longer show progress from the start, runs with a
// number of messages after that time.
const (
	progressFrom = 5 * time.Second
	progressEach = time.Second
)

// showProgress prints the progress of a long run until stop is called. Nothing is printed after stop has returned.
func (s *session) showProgress() (stop func()) {
	if d := s.o.Duration; d > 0 && d <= progressFrom {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressEach)
		defer tick.Stop()
		start, before := time.Now(), int64(0)
		for {
			select {
			case <-done:
				return
			case now := <-tick.C:
				n := s.e.done.Load()
				if elapsed := now.Sub(start); s.o.Duration > 0 || elapsed >= progressFrom {
					fmt.Fprintln(s.o.Log, s.o.progress(elapsed, float64(n-before)/progressEach.Seconds()))
				}
				before = n
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// progress returns the progress message of a run: the time so far, and messages per second.
func (o *Options) progress(elapsed time.Duration, rate float64) string {
	of := ""
	if o.Duration > 0 {
		of = fmt.Sprintf(" of %.0f", o.Duration.Seconds())
	}
	line := fmt.Sprintf("after %.0f%s s: %.0f messages/s", elapsed.Seconds(), of, rate)
	if o.All { // of one of the sizes
		return line
	}
	unit, bytes := o.unit()
	return fmt.Sprintf("%s, %.2f %s", line, rate*float64(o.Size)/bytes, unit)
}
