package perf

import (
	"testing"
	"testing/synctest"
	"time"
)

// slowLog takes a quarter of the interval of messages for each.
type slowLog struct{ begun, done int }

func (l *slowLog) Write(b []byte) (int, error) {
	l.begun++
	time.Sleep(progressEach / 4)
	l.done++
	return len(b), nil
}

// TestProgressStops: stop returns when the message in the making is written, so the report comes after it.
func TestProgressStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log slowLog
		s := &session{o: &Options{Duration: 2 * progressFrom, Log: &log}, e: &endpoint{}}
		stop := s.showProgress()
		time.Sleep(progressEach + progressEach/8)
		stop()
		if log.begun != 1 || log.done != 1 {
			t.Errorf("%d messages begun, %d written; want 1 of each", log.begun, log.done)
		}
	})
}
