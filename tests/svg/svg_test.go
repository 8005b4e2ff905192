package svg

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func wellFormed(t interface{ Fatalf(string, ...any) }, text string) {
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
	}
}

// TestChart draws charts of any figures: they are well-formed, and every point is
// within the plot.
func TestChart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		figure := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(1e-6, 1e9))
		point := rapid.Custom(func(t *rapid.T) *Spread {
			if rapid.Bool().Draw(t, "gap") {
				return nil
			}
			v := slices.Sorted(slices.Values(rapid.SliceOfN(figure, 3, 3).Draw(t, "figures")))
			return &Spread{Min: v[0], Median: v[1], Max: v[2]}
		})
		c := &Chart{Title: rapid.String().Draw(t, "title"), Ticks: []string{"a", "b", "<c>"},
			Log: rapid.Bool().Draw(t, "log")}
		for range rapid.IntRange(0, 8).Draw(t, "lines") {
			c.Lines = append(c.Lines, Line{Name: c.Title, Points: rapid.SliceOfN(point, 3, 3).Draw(t, "points"),
				Level: point.Draw(t, "level")})
		}
		var out strings.Builder
		if err := c.Write(&out); err != nil {
			t.Fatal(err)
		}
		wellFormed(t, out.String())
		y := c.scale()
		for _, l := range c.Lines {
			for _, p := range l.all() {
				if c.Log && p.Min <= 0 {
					continue
				}
				for _, v := range []float64{p.Min, p.Median, p.Max} {
					if at := y.at(v); !(at >= top && at <= bottom) {
						t.Fatalf("%v stands at %v, the axis goes from %v to %v", v, at, y.min, y.max)
					}
				}
			}
		}
		if len(y.ticks) < 2 || len(y.ticks) > 30 {
			t.Fatalf("%d ticks, want 2 to 30", len(y.ticks))
		}
	})
}

// TestPath: a line over numbers goes from one to the next, in the places of the numbers on the axis.
func TestPath(t *testing.T) {
	c := &Chart{Title: "Path", XMost: 10}
	c.Add(Line{Name: "rises", Path: []Point{{0, 0}, {5, 1}, {10, 1}}})
	c.Add(Line{Name: "empty"})
	var out strings.Builder
	if err := c.Write(&out); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, out.String())
	for _, want := range []string{`d="M64.0 376.0L327.0 80.0L590.0 80.0"`, `x="590.0" y="396.0" text-anchor="middle">10<`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %s", &out, want)
		}
	}
	if strings.Contains(out.String(), "empty") || strings.Contains(out.String(), "median") {
		t.Errorf("got a line without points, or the key of ranges, want neither:\n%s", &out)
	}
}
