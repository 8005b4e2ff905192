package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// maxRetried is how many rows of a process get a second try: if more fail, something is wrong.
const maxRetried = 3

// retried holds the names of the rows that were tried twice.
var retried struct {
	mu   sync.Mutex
	rows []string
}

// Row runs a subtest that depends on an emulated guest, and runs it once more if it fails:
// now and then an emulated guest stops for seconds, so that packets are lost or timeouts
// expire. [Main] prints which rows needed that; see [TryAgain].
func Row(t *testing.T, name string, row func(testing.TB)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Helper()
		first := &firstTry{TB: t}
		switch {
		case !first.run(row):
		case TryAgain(t, t.Name()):
			row(t)
		default:
			t.Fail()
		}
	})
}

// firstTry is the testing.TB of a row's first try. Its failures are logged, but do not fail
// the test; its context and its cleanups end with it. It passes all else to the test.
type firstTry struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

// run reports whether the try has failed.
func (f *firstTry) run(row func(testing.TB)) bool {
	ctx, cancel := context.WithCancel(f.TB.Context())
	f.ctx = ctx
	// FailNow ends the goroutine, which must not be that of the test.
	f.inGoroutine(func() { row(f) })
	cancel()
	for {
		f.mu.Lock()
		n := len(f.cleanups)
		if n == 0 {
			f.mu.Unlock()
			return f.Failed()
		}
		last := f.cleanups[n-1]
		f.cleanups = f.cleanups[:n-1]
		f.mu.Unlock()
		f.inGoroutine(last)
	}
}

func (f *firstTry) inGoroutine(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
}

func (f *firstTry) Context() context.Context { return f.ctx }

func (f *firstTry) Cleanup(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cleanups = append(f.cleanups, do)
}

func (f *firstTry) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *firstTry) Fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = true
}

func (f *firstTry) FailNow() {
	f.Fail()
	runtime.Goexit()
}

func (f *firstTry) Error(args ...any) {
	f.TB.Helper()
	f.TB.Log(append([]any{"first try:"}, args...)...)
	f.Fail()
}

func (f *firstTry) Errorf(format string, args ...any) {
	f.TB.Helper()
	f.TB.Logf("first try: "+format, args...)
	f.Fail()
}

func (f *firstTry) Fatal(args ...any) {
	f.TB.Helper()
	f.Error(args...)
	runtime.Goexit()
}

func (f *firstTry) Fatalf(format string, args ...any) {
	f.TB.Helper()
	f.Errorf(format, args...)
	runtime.Goexit()
}

// TryAgain reports whether a row that has failed may be tried once more, as three rows of a
// process may. It records the row for [Main] and, if $GOROCE_RETRIED is set, in that file,
// whose lines .ci/run counts.
func TryAgain(t testing.TB, row string) bool {
	t.Helper()
	retried.mu.Lock()
	defer retried.mu.Unlock()
	if len(retried.rows) == maxRetried {
		t.Logf("no second try: %d rows have had one", maxRetried)
		return false
	}
	t.Log("once more")
	retried.rows = append(retried.rows, row)
	if path := os.Getenv("GOROCE_RETRIED"); path != "" {
		if err := appendLine(path, row); err != nil {
			t.Errorf("note that the row is tried once more: %v", err)
		}
	}
	return true
}

func appendLine(path, line string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, line)
	return errors.Join(err, file.Close())
}

// reportRetried prints which rows needed a second try.
func reportRetried() {
	retried.mu.Lock()
	defer retried.mu.Unlock()
	if len(retried.rows) > 0 {
		fmt.Fprintf(os.Stderr, "%d rows on emulated guests were tried twice:\n%s\n", len(retried.rows),
			strings.Join(retried.rows, "\n"))
	}
}
