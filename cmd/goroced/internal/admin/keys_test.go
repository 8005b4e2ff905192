package admin

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	srv "github.com/goroce/goroce/roce/daemon/server"
)

// TestKeys: who is not privileged sees memory regions, and nothing that reaches them.
func TestKeys(t *testing.T) {
	for _, c := range []struct {
		privileged bool
		want       string
	}{
		{true, "dev blue mrn 7 rkey 0x712 lkey 0x712 iova 0x7f0000001000 mrlen 64 pid 42 comm app \n"},
		{false, "dev blue mrn 7 mrlen 64 pid 42 comm app \n"},
	} {
		list := []srv.MRInfo{{Device: "blue", Number: 7, Key: 0x712, IOVA: 0x7f0000001000, Length: 64,
			Owner: srv.Owner{PID: 42, Comm: "app"}}}
		list = mrsFor(list, c.privileged)
		var text bytes.Buffer
		if err := PrintMRs(&text, list); err != nil || text.String() != c.want {
			t.Errorf("privileged %v: %q, %v", c.privileged, &text, err)
		}
		text.Reset()
		if err := json.NewEncoder(&text).Encode(list); err != nil ||
			strings.Contains(text.String(), "key") != c.privileged ||
			strings.Contains(text.String(), "iova") != c.privileged {
			t.Errorf("privileged %v: %s, %v", c.privileged, &text, err)
		}
	}
}
