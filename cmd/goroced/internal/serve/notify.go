package serve

import (
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notify sends a state to the service manager, if there is one: sd_notify(3).
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("the service manager was not told", "state", state, "error", err)
	}
}

// reloading returns the state that announces a reload; READY=1 ends it. The time lets systemd tell several reloads
// apart.
func reloading() string {
	return strings.TrimSuffix("RELOADING=1\n"+daemon.SdNotifyMonotonicUsec(), "\n")
}

// watchdog says when to send the next sign of life.
type watchdog struct{ ticker *time.Ticker }

// newWatchdog uses half of the service manager's interval, as sd_watchdog_enabled(3) recommends.
func newWatchdog(log *slog.Logger) watchdog {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("no watchdog", "error", err)
	}
	if limit <= 1 {
		return watchdog{}
	}
	return watchdog{time.NewTicker(limit / 2)}
}

// tick returns a channel that never fires if there is no watchdog.
func (w watchdog) tick() <-chan time.Time {
	if w.ticker == nil {
		return nil
	}
	return w.ticker.C
}

func (w watchdog) stop() {
	if w.ticker != nil {
		w.ticker.Stop()
	}
}
