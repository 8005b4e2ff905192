package serve

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestLogDurations: both formats have durations as people write them.
func TestLogDurations(t *testing.T) {
	for format, want := range map[string]string{"json": `"left":"1.5s"`, "text": "left=1.5s"} {
		var b bytes.Buffer
		logger(&b, format, slog.LevelInfo).Info("waiting for clients", "left", 1500*time.Millisecond)
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: %s, want %q", format, b.String(), want)
		}
	}
}
