package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	srv "github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/trace"
)

// Why is the story of a queue pair that has failed, or of an open one.
type Why struct {
	srv.FailureInfo
	Advice string       `json:"advice,omitempty"` // what to look at
	Ladder trace.Ladder `json:"ladder"`           // what its flight recorder has; a train of packets is one event
}

// ladderMost is no limit: a flight recorder has fewer events.
const ladderMost = 1 << 10

// why tells the stories of a View, to those who may see them.
type why struct{ View }

// list returns the stories of a queue pair.
func (w why) list(r *http.Request) (int, any, error) {
	told, err := w.stories(r)
	if err != nil {
		return 0, nil, err
	}
	list := make([]Why, len(told))
	for i := range told {
		t := &told[i]
		list[i] = Why{t.FailureInfo, t.Story.Failed.Cause.Reason.Advice(), t.Story.Ladder(ladderMost)}
	}
	return http.StatusOK, list, nil
}

// stories returns what a request may see of the queue pair that it names.
func (w why) stories(r *http.Request) ([]srv.Told, error) {
	const op = "tell the story of a QP"
	device, text := r.URL.Query().Get("device"), r.URL.Query().Get("qp")
	qpn, err := parseQPN(op, "qp", text)
	if err != nil {
		return nil, err
	}
	told := storiesFor(w.Stories(device, uint32(qpn)), seenBy(r.Context()))
	if len(told) == 0 {
		return nil, driver.Refuse(op, "ID", text,
			"a queue pair of yours that is open, or among the last 64 that have failed", ib.ErrInvalid)
	}
	return told, nil
}

// storiesFor leaves out those of other users' queue pairs, as failuresFor does: they have PSNs, too.
func storiesFor(list []srv.Told, sees func(uid uint32) bool) []srv.Told {
	return slices.DeleteFunc(list, func(t srv.Told) bool { return !sees(t.UID) })
}

// failureHeader has a sentence about the failure whose packets follow.
const failureHeader = "Goroce-Failure"

// capture sends the packets of the latest story, or with next of the next failure, as a capture file.
func (w why) capture(rw http.ResponseWriter, r *http.Request) {
	tell := w.latest
	if r.URL.Query().Has("next") {
		tell = w.next
	}
	control := http.NewResponseController(rw)
	_ = control.SetWriteDeadline(time.Time{}) // the server's limit would end the wait
	told, err := tell(r)
	_ = control.SetWriteDeadline(time.Now().Add(answerLimit))
	if err != nil {
		refuse(rw, err)
		return
	}
	rw.Header().Set("Content-Type", "application/x-pcapng")
	rw.Header().Set(failureHeader, fmt.Sprintf("%s QP %#x: %s", told.Device, told.QPN, told.Failed))
	_ = told.Story.WriteCapture(rw, told.Began) // an error means that the client has disconnected
}

func (w why) latest(r *http.Request) (srv.Told, error) {
	list, err := w.stories(r)
	if err != nil {
		return srv.Told{}, err
	}
	return list[len(list)-1], nil
}

// next waits for a failure that a request may see, of any queue pair or of the one that it names.
func (w why) next(r *http.Request) (srv.Told, error) {
	device, text := r.URL.Query().Get("device"), r.URL.Query().Get("qp")
	qpn := ib.QPN(0)
	if text != "" {
		var err error
		if qpn, err = parseQPN("wait for a failure", "qp", text); err != nil {
			return srv.Told{}, err
		}
	}
	sees := seenBy(r.Context())
	return w.NextFailure(r.Context(), func(f *srv.FailureInfo) bool {
		return sees(f.UID) && (device == "" || f.Device == device) && (qpn == 0 || f.QPN == uint32(qpn))
	})
}

// Why returns the stories of a queue pair, on one device or, with "", on any.
func (c *Client) Why(ctx context.Context, device string, qpn uint32) (list []Why, err error) {
	path := query("why", "device", device, "qp", strconv.FormatUint(uint64(qpn), 10))
	err = c.call(ctx, http.MethodGet, path, nil, &list)
	return list, err
}

// WhyCapture writes the packets of the latest story of a queue pair to w, as a capture file; with next, those of the
// next failure, of a queue pair or, with 0, of any. It returns what has failed, and why.
func (c *Client) WhyCapture(ctx context.Context, w io.Writer, device string, qpn uint32, next bool) (string, error) {
	params := []string{"device", device}
	if qpn != 0 {
		params = append(params, "qp", strconv.FormatUint(uint64(qpn), 10))
	}
	client := c
	if next {
		params = append(params, "next", "1")
		client = NewClient(c.socket)
		client.http.Transport.(*http.Transport).ResponseHeaderTimeout = 0 // it may be long until something fails
	}
	r, err := client.answer(ctx, http.MethodGet, "/v1/"+query("why/capture", params...), nil)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	_, err = io.Copy(w, r.Body)
	return r.Header.Get(failureHeader), err
}

// PrintWhy prints stories, each with the last rows of its ladder.
func PrintWhy(w io.Writer, t term.Terminal, list []Why, rows int) error {
	for i := range list {
		var b strings.Builder
		y := &list[i]
		if i > 0 {
			b.WriteString("\n")
		}
		writeFailure(&b, &y.FailureInfo)
		if y.Advice != "" {
			fmt.Fprintf(&b, "    look at: %s\n", y.Advice)
		}
		if err := onScreen(w, t, b.String()); err != nil {
			return err
		}
		text := "\nits flight recorder has nothing: it had no packet, or too many queue pairs have\n"
		if l := y.Ladder; len(l.Events) > 0 {
			if n := len(l.Events) - rows; n > 0 && rows > 0 {
				l.Events = l.Events[n:]
			}
			text = "\n" + l.Text(trace.TextOptions{Width: t.Columns(), ASCII: t.ASCII, Color: t.Color, Fold: 4})
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}
