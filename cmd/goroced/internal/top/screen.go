package top

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
)

// Show draws the table on a terminal, anew at each interval, until the user quits or the context ends. It returns the
// error of a sample that could not be taken.
func Show(ctx context.Context, screen tcell.Screen, get Source, v View, interval time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := screen.Init(); err != nil {
		return fmt.Errorf("draw on the terminal: %w", err)
	}
	defer screen.Fini()
	d := display{screen: screen, view: v}
	intervals := make(chan outcome)
	go func() {
		for rows, err := range get.Intervals(ctx, interval) {
			select {
			case intervals <- outcome{rows, err}:
			case <-ctx.Done():
			}
		}
	}()
	events := make(chan tcell.Event, 16)
	go screen.ChannelEvents(events, ctx.Done())
	for {
		d.draw()
		select {
		case <-ctx.Done():
			return nil
		case o := <-intervals:
			if o.err != nil {
				return o.err
			}
			d.took(o.rows)
		case e, open := <-events:
			if !open || d.handle(e) {
				return nil
			}
		}
	}
}

// outcome is what an interval has brought.
type outcome struct {
	rows []Row
	err  error
}

// display is what is on the screen. One goroutine uses it.
type display struct {
	screen tcell.Screen
	view   View
	rows   []Row // of the latest interval, or of the one before the pause
	paused bool
	typing bool // the filter
	first  int  // row that is shown first
}

func (d *display) took(rows []Row) {
	if !d.paused {
		d.rows = rows
	}
}

// handle handles a key or a resize. It reports whether the user quits.
func (d *display) handle(e tcell.Event) (quit bool) {
	switch e := e.(type) {
	case *tcell.EventResize:
		d.screen.Sync()
	case *tcell.EventKey:
		if d.typing {
			d.typed(e)
			return e.Key() == tcell.KeyCtrlC
		}
		return d.command(e)
	}
	return false
}

// typed handles a key while the filter is entered.
func (d *display) typed(e *tcell.EventKey) {
	f := []rune(d.view.Filter)
	switch e.Key() {
	case tcell.KeyEnter:
		d.typing = false
	case tcell.KeyEscape:
		d.typing, f = false, nil
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		f = f[:max(len(f)-1, 0)]
	case tcell.KeyRune:
		f = append(f, e.Rune())
	}
	d.view.Filter, d.first = string(f), 0
}

// keys is what the last line says.
const keys = "q quit  < > sort by  r reverse  p processes  / filter  space pause  arrows scroll"

func (d *display) command(e *tcell.EventKey) (quit bool) {
	switch e.Key() {
	case tcell.KeyCtrlC, tcell.KeyEscape:
		return true
	case tcell.KeyLeft:
		d.view.next(-1)
	case tcell.KeyRight:
		d.view.next(1)
	case tcell.KeyUp:
		d.first--
	case tcell.KeyDown:
		d.first++
	case tcell.KeyPgUp:
		d.first -= d.room()
	case tcell.KeyPgDn:
		d.first += d.room()
	case tcell.KeyHome:
		d.first = 0
	case tcell.KeyRune:
		return d.letter(e.Rune())
	}
	return false
}

func (d *display) letter(r rune) (quit bool) {
	switch r {
	case 'q':
		return true
	case '<':
		d.view.next(-1)
	case '>':
		d.view.next(1)
	case 'r':
		d.view.Reverse = !d.view.Reverse
	case 'p':
		d.view.Processes, d.first = !d.view.Processes, 0
	case '/':
		d.typing, d.view.Filter = true, ""
	case ' ':
		d.paused = !d.paused
	}
	return false
}

// room is how many rows the screen has, beside the summary, the head and the keys.
func (d *display) room() int {
	_, height := d.screen.Size()
	return max(height-3, 1)
}

func (d *display) draw() {
	rows := d.view.Select(d.rows)
	head, lines := d.view.lines(rows)
	d.first = max(min(d.first, len(lines)-d.room()), 0)
	d.screen.Clear()
	d.put(0, 0, d.view.summary(rows), tcell.StyleDefault.Bold(true))
	d.head(head)
	for i := d.first; i < len(lines) && i < d.first+d.room(); i++ {
		style := tcell.StyleDefault
		if rows[i].Failed != "" {
			style = style.Foreground(tcell.ColorRed)
		}
		d.put(0, 2+i-d.first, lines[i], style)
	}
	_, height := d.screen.Size()
	d.put(0, height-1, d.status(), tcell.StyleDefault.Dim(true))
	d.screen.Show()
}

// head draws the titles, that of the column that rows are sorted by underlined.
func (d *display) head(head string) {
	style := tcell.StyleDefault.Reverse(true)
	d.put(0, 1, head, style)
	list := d.view.columns()
	by := list[d.view.sorted(list)].title
	// No title is a word of another one.
	if at := strings.Index(" "+head+" ", " "+by+" "); at >= 0 {
		d.put(at, 1, by, style.Underline(true).Bold(true))
	}
}

// status is the last line.
func (d *display) status() string {
	text := keys
	if d.typing {
		return "only rows with: " + d.view.Filter + "_  (enter, escape)"
	}
	if d.view.Filter != "" {
		text = "only rows with " + d.view.Filter + "  " + text
	}
	if d.paused {
		text = "paused  " + text
	}
	return text
}

// put writes a line from column x on. What does not fit is cut.
func (d *display) put(x, y int, line string, style tcell.Style) {
	width, _ := d.screen.Size()
	for _, r := range line {
		if x == width {
			return
		}
		d.screen.SetContent(x, y, r, nil, style)
		x++
	}
}
