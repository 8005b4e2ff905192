package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/tests/linktest"
)

// FuzzRequests sends arbitrary requests to the handlers for faults and captures. Each is answered as
// JSON with a status that says whose fault it is, never the daemon's; a fault that is added is listed as it was
// answered, and would be the same if it were added again.
func FuzzRequests(f *testing.F) {
	f.Add("GET", "faults?device=one", "")
	f.Add("POST", "faults", `{"action":"drop","direction":"sent","opcode":"ack","psn":"70-90","count":3,"seed":7}`)
	f.Add("POST", "faults", `{"device":"one","action":"delay","delay":"5ms","qp":17,"peer":"192.0.2.1","ttl":"1m30s"}`)
	f.Add("POST", "faults", `{"action":"corrupt","peer_qp":16777215,"probability":0.5,"psn":"0x10"}`)
	f.Add("POST", "faults", `{"action":"duplicate","probability":1e-300,"delay":"-1h","peer":"fe80::1%eth0"}`)
	for _, bad := range []string{`"delay":"5"`, `"ttl":"x"`, `"psn":"7-"`, `"peer":"x"`, `"qp":16777216`, `"qp":-1`,
		`"opcode":"x"`, `"probability":2`, `"psn":"9-7"`, `"nothing":1`} {
		f.Add("POST", "faults", `{"action":"drop",`+bad+`}`)
	}
	f.Add("POST", "faults", strings.Repeat(`{"action":`, 5000))
	f.Add("DELETE", "faults?id=1", "")
	f.Add("DELETE", "faults?id=-1&device=two", "")
	f.Add("GET", "capture?qp=0x11&peer_qp=18&peer=::1&device=one", "")
	f.Add("PUT", "captur%65?qp=", "x")
	var live host.Live
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{linktest.Loopback()}, Live: &live,
		Device: roce.Options{Name: "one"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { dev.Close() })
	mux := http.NewServeMux()
	Register(mux, &live)
	gone, cancel := context.WithCancel(context.Background())
	cancel() // captures end at once
	ask := func(method, target, body string) *httptest.ResponseRecorder {
		r, err := http.NewRequestWithContext(gone, method, "http://goroced/v1/"+target, strings.NewReader(body))
		if err != nil {
			return nil
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		defer live.ClearRules("")
		w := ask(method, target, body)
		switch {
		case w == nil:
			return
		case w.Code >= 500 || w.Code < 200:
			t.Fatalf("%s %q: status %d, want 200 to 499: %s", method, target, w.Code, w.Body)
		case w.Code >= 400 && strings.HasPrefix(w.Header().Get("Content-Type"), "application/json"):
			var p problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Error == "" {
				t.Fatalf("%s %q: status %d without a reason: %s", method, target, w.Code, w.Body)
			}
		case w.Code == http.StatusCreated:
			again(t, ask, w.Body.Bytes())
		}
	})
}

// again adds the fault that was added once more, and compares the two.
func again(t *testing.T, ask func(method, target, body string) *httptest.ResponseRecorder, answer []byte) {
	t.Helper()
	decode := func(b []byte, v any) {
		t.Helper()
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(v); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
	}
	var first, second Fault
	decode(answer, &first)
	w := ask(http.MethodPost, "faults", string(answer))
	if w.Code != http.StatusCreated {
		t.Fatalf("what was answered, %s, is refused: %d, want %d: %s", answer, w.Code, http.StatusCreated, w.Body)
	}
	decode(w.Body.Bytes(), &second)
	if second.ID == first.ID {
		t.Fatalf("two faults with ID %d, want two IDs", first.ID)
	}
	var list faultList
	decode(ask(http.MethodGet, "faults", "").Body.Bytes(), &list)
	if len(list.Faults) != 2 || list.Faults[0] != first || list.Faults[1] != second {
		t.Fatalf("%d faults are listed: %+v, want %+v and %+v", len(list.Faults), list.Faults, first, second)
	}
	if second.ID = first.ID; second != first {
		t.Fatalf("%+v when it is added again, want %+v", second, first)
	}
}

// FuzzCounters decodes arbitrary counters of a daemon, and what they have grown by.
func FuzzCounters(f *testing.F) {
	f.Add([]byte(`{"rcvd_pkts":7,"sent_pkts":18446744073709551615}`))
	f.Add([]byte(`{"a":1,"a":0,"b":-1}`))
	f.Add([]byte(`[{"a":[1]}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Counters
		if json.Unmarshal(b, &c) != nil {
			return
		}
		if 4*len(c) > len(b) {
			t.Fatalf("%d counters of %d bytes, want at most one for each 4", len(c), len(b))
		}
		added := c.Since(Counters{{"a", 1}, {"b", 2}})
		if len(added) != len(c) {
			t.Fatalf("%d counters have grown, want %d", len(added), len(c))
		}
		for i := range c {
			if added[i].Name != c[i].Name || added[i].Value > c[i].Value {
				t.Fatalf("%+v has grown by %+v, want at most by itself", c[i], added[i])
			}
		}
	})
}
