package main

import (
	"fmt"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/config"
	"github.com/goroce/goroce/cmd/goroced/internal/manpage"
)

func init() { references = append(references, configPage) }

// configPage is goroced.toml(5), from the table of settings.
func configPage(b *manpage.Book) manpage.Page {
	parts := []manpage.Part{{Title: "DESCRIPTION", Text: configAbout}}
	table := "-"
	for _, k := range config.Reference(config.Sources{}) {
		at := strings.LastIndexByte(k.Name, '.')
		if head := k.Name[:max(at, 0)]; head != table {
			table = head
			title := "BEFORE ALL TABLES"
			switch {
			case table == "device":
				title = "[[device]]"
			case table != "":
				title = "[" + table + "]"
			}
			parts = append(parts, manpage.Part{Title: title, Text: config.Tables[table]})
		}
		text := fmt.Sprintf("%s Type: %s; allowed: %s. Default: %s.", k.About, k.Type, k.Allowed, k.Standard)
		if !k.Live {
			text += " A change takes a restart."
		}
		last := &parts[len(parts)-1]
		last.Items = append(last.Items, manpage.Item{Term: k.Name[at+1:], Text: text})
	}
	parts = append(parts, manpage.Part{Title: "FILES", Items: []manpage.Item{
		{Term: "/etc/goroce/goroced.toml", Text: "The file of root's daemon, and of the packages' unit."},
		{Term: "$XDG_CONFIG_HOME/goroce/goroced.toml, ~/.config/goroce/goroced.toml", Text: "That of another " +
			"user's."}}},
		manpage.Part{Title: "EXAMPLES", Text: configExample})
	return b.Reference("goroced.toml", 5, "configuration of the daemon goroced",
		"goroced-serve(1), goroced-config(1)", parts)
}

// configAbout is what the page begins with.
const configAbout = "The configuration of goroced serve, in TOML. Every setting has a default, so the file " +
	"may be empty or missing. `goroced config init` prints a file with all settings as comments, `goroced config " +
	"check FILE` finds mistakes, and `goroced config show` prints what the daemon would run with, and where each " +
	"value comes from.\n\nFlags override the environment, the environment overrides the file, and the file the " +
	"defaults. An unknown key, a value of another type and one that is not allowed are errors. SIGHUP reads the " +
	"file again; a file with a mistake changes nothing.\n\nAs any key can be set with --set KEY=VALUE, each has a " +
	"variable of the environment, as limits.user.qps has GOROCED_LIMITS_USER_QPS. Variables GOROCED_DEVICE_... " +
	"describe one device, in place of those of the file."

// configExample is a file that a test reads.
const configExample = "Two devices, a limit, and metrics:\n\n" +
	"  drain = \"30s\"\n\n" +
	"  [[device]]\n  name = \"blue\"\n  netif = \"eth1\"\n\n" +
	"  [[device]]\n  name = \"red\"\n  addresses = [\"192.0.2.1\"]\n\n" +
	"  [limits.user]\n  pinned = \"16GiB\"\n\n" +
	"  [metrics]\n  listen = \"127.0.0.1:9471\""
