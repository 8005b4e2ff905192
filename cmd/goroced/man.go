package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/cmd/goroced/internal/manpage"
)

// manCmd is `goroced man`.
type manCmd struct {
	Dir string `arg:"" type:"path" help:"Directory of manual pages, in which man1, man5 and so on are made if they are not there."`
}

// Help is printed under the flags.
func (*manCmd) Help() string {
	return "Then `man goroced`, `man goroced-serve` for one of its commands, or `man goroced.toml` for its " +
		"configuration shows them, if the directory is one that man reads. They bear the date of the release, or " +
		"that of $SOURCE_DATE_EPOCH."
}

// Run runs the subcommand.
func (c *manCmd) Run(parsed *kong.Context) error {
	date, err := pageDate()
	if err != nil {
		return err
	}
	book := manpage.Book{Date: date, Source: "goroced " + readVersion().Version,
		See: "https://github.com/goroce/goroce", Status: "0 is success, 1 failure, 2 an invalid command line.",
		Examples: examplesTitle, Files: usesOf(files), Environment: usesOf(variables)}
	pages := book.Pages(parsed.Model)
	for _, reference := range references {
		pages = append(pages, reference(&book))
	}
	for _, page := range pages {
		dir := filepath.Join(c.Dir, fmt.Sprintf("man%d", page.Section))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("man: %w", err)
		}
		name := fmt.Sprintf("%s.%d", page.Name, page.Section)
		if err := os.WriteFile(filepath.Join(dir, name), page.Text, 0o644); err != nil {
			return fmt.Errorf("man: %w", err)
		}
	}
	return nil
}

// references write the pages that are not of commands.
var references []func(*manpage.Book) manpage.Page

// pageDate returns the day that manual pages bear, "" if nothing tells it.
func pageDate() (string, error) {
	const variable = "SOURCE_DATE_EPOCH"
	if epoch := os.Getenv(variable); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return "", fmt.Errorf("man: %s is %q; it must be a number of seconds since 1970", variable, epoch)
		}
		return time.Unix(seconds, 0).UTC().Format(time.DateOnly), nil
	}
	at, err := time.Parse(time.RFC3339, readVersion().Time)
	if err != nil {
		return "", nil // the version has no time
	}
	return at.UTC().Format(time.DateOnly), nil
}
