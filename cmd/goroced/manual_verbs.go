package main

import (
	"regexp"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/manpage"
	"github.com/goroce/goroce/docs"
)

func init() { references = append(references, verbsPage) }

// verbsPage is goroced-verbs(7), from the parts of docs/dropin.md that are short.
func verbsPage(b *manpage.Book) manpage.Page {
	text, _ := docs.Files.ReadFile("dropin.md") // a test reads the page
	parts := []manpage.Part{
		{Title: "DESCRIPTION", Text: prose(chapter(string(text), ""))},
		{Title: "THE DAEMON THAT IS STARTED", Text: prose(chapter(string(text), "The daemon that is started"))},
		{Title: "WHAT IS NOT OFFERED", Text: prose(chapter(string(text), "What is not offered"))},
		{Title: "FAST MEMORY", Text: prose(chapter(string(text), "Fast memory"))},
		{Title: "ENVIRONMENT"},
	}
	for _, v := range variables {
		if strings.HasPrefix(v.term, "GOROCE_") || v.term == "CC" || v.term == "GOROCED_SOCKET" {
			last := &parts[len(parts)-1]
			last.Items = append(last.Items, manpage.Item{Term: v.term, Text: v.text})
		}
	}
	return b.Reference("goroced-verbs", 7, "libibverbs and librdmacm over goroced",
		"goroced-run(1), goroced-why(1), goroced(1); goroced docs dropin and goroced docs verbs have more", parts)
}

// chapter returns the text of a document under a heading, or before the first one.
func chapter(document, heading string) string {
	_, document, _ = strings.Cut(document, "\n") // the title
	if heading != "" {
		_, document, _ = strings.Cut(document, "\n## "+heading+"\n")
	}
	document, _, _ = strings.Cut(document, "\n## ")
	return document
}

var hyperlink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// prose returns the paragraphs, items and blocks of commands of a text in Markdown, each apart from the next by an
// empty line. Rows of tables become items; of links the words stay.
func prose(markdown string) string {
	var blocks []string
	for _, block := range strings.Split(strings.Trim(markdown, "\n"), "\n\n") {
		switch {
		case strings.HasPrefix(block, "    "):
			blocks = append(blocks, block)
			continue
		case strings.HasPrefix(block, "|"):
			rows := strings.Split(block, "\n")[2:] // after the head
			for i, row := range rows {
				rows[i] = "- " + strings.ReplaceAll(strings.Trim(row, "| "), " | ", ": ")
			}
			block = strings.Join(rows, "\n")
		}
		for _, item := range strings.Split(strings.ReplaceAll(block, "\n- ", "\n\n- "), "\n\n") {
			item = hyperlink.ReplaceAllString(strings.Join(strings.Fields(item), " "), "$1")
			blocks = append(blocks, strings.ReplaceAll(item, "`", ""))
		}
	}
	return strings.Join(blocks, "\n\n")
}
