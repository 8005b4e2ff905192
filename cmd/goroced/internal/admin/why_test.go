package admin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	srv "github.com/goroce/goroce/roce/daemon/server"
)

// TestStoriesFor: users do not see the stories of others.
func TestStoriesFor(t *testing.T) {
	of := func(qpn, uid uint32) srv.Told {
		return srv.Told{FailureInfo: srv.FailureInfo{QPN: qpn, Owner: srv.Owner{UID: uid}}}
	}
	for _, c := range []struct {
		sees func(uint32) bool
		want int
	}{{all, 2}, {onlyMine, 1}, {none, 0}} {
		got := storiesFor([]srv.Told{of(5, me), of(5, other)}, c.sees)
		if len(got) != c.want || c.want == 1 && got[0].UID != me {
			t.Errorf("got %d stories, want %d", len(got), c.want)
		}
	}
}

// storyView has one story, of another user, and failures of that user only.
type storyView struct {
	View
	t     *testing.T
	asked bool
}

func (*storyView) Stories(string, uint32) []srv.Told {
	return []srv.Told{{FailureInfo: srv.FailureInfo{QPN: 5, Owner: srv.Owner{UID: other}}}}
}

func (v *storyView) NextFailure(_ context.Context, wants func(*srv.FailureInfo) bool) (srv.Told, error) {
	v.asked = true
	if wants(&srv.FailureInfo{QPN: 5, Owner: srv.Owner{UID: other}}) {
		v.t.Error("whoever is nobody waits for the failure of another user")
	}
	return srv.Told{}, context.Canceled
}

// TestWhyOfOthers: the handlers ask who sees a story, and say what is wrong.
func TestWhyOfOthers(t *testing.T) {
	v := &storyView{t: t}
	mux := http.NewServeMux()
	RegisterView(mux, v)
	for _, c := range []struct {
		path   string
		status int
		want   string
	}{
		{"/v1/why?qp=5", http.StatusNotFound, "among the last 64"},
		{"/v1/why/capture?qp=5", http.StatusNotFound, "among the last 64"},
		{"/v1/why", http.StatusBadRequest, "a QP number"},
		{"/v1/why/capture?next=1&qp=x", http.StatusBadRequest, "a QP number"},
		{"/v1/why/capture?next=1", http.StatusInternalServerError, "canceled"},
	} {
		r := httptest.NewRecorder()
		mux.ServeHTTP(r, httptest.NewRequest(http.MethodGet, c.path, nil))
		if r.Code != c.status || !strings.Contains(r.Body.String(), c.want) {
			t.Errorf("%s: got %d %s, want %d and %q", c.path, r.Code, r.Body, c.status, c.want)
		}
	}
	if !v.asked {
		t.Error("nobody has waited for a failure")
	}
}
