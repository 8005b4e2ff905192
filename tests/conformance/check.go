package conformance

import (
	"errors"
	"regexp"
	"strings"

	"github.com/goroce/goroce/ib"
)

// is fails the half unless err matches one of the sentinels.
func (e *End) is(err error, what string, sentinels ...error) {
	if err == nil {
		e.fatalf("%s succeeded, want %v", what, sentinels)
	}
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return
		}
	}
	e.fatalf("%s: the error %q is none of %v", what, err, sentinels)
}

// names fails the half unless err is an *ib.AttrError for that attribute (ignoring case) which matches one of the
// sentinels.
func (e *End) names(err error, what, attr string, sentinels ...error) {
	e.is(err, what, sentinels...)
	var a *ib.AttrError
	if !errors.As(err, &a) || !strings.Contains(strings.ToLower(a.Attr), strings.ToLower(attr)) {
		e.fatalf("%s: the error %q (%T) does not name the attribute %s", what, err, err, attr)
	}
	if a.Allowed == "" {
		e.fatalf("%s: the error %q does not say what is allowed", what, err)
	}
}

// busy fails the half unless close is refused because the object is in use; the error must match by.
func (e *End) busy(what string, close func() error, by string) {
	err := close()
	e.is(err, "closing the "+what, ib.ErrBusy)
	if !regexp.MustCompile("(?i)" + by).MatchString(err.Error()) {
		e.fatalf("closing the %s: the error %q does not say what uses it (%s)", what, err, by)
	}
}
