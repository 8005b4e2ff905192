package serve

import (
	"html/template"
	"net/http"
)

// page is a path of the HTTP servers, for the index.
type page struct{ Path, Shows string }

// Pages by who may have them.
var (
	observed = []page{
		{"/metrics", "figures for Prometheus"},
		{"/healthz", "whether the daemon answers"},
	}
	profiles = []page{{"/debug/pprof/", "profiles of the daemon"}}
	views    = []page{
		{"/v1/status", "the daemon, its users and devices"},
		{"/v1/devices", "devices"},
		{"/v1/qps", "queue pairs"},
		{"/v1/mrs", "memory regions"},
		{"/v1/cm", "IDs of the connection manager"},
		{"/v1/failures", "why queue pairs have failed; /v1/why?qp=N is the story of one, and /v1/why/capture?qp=N " +
			"has its packets"},
		{"/v1/stats", "counters of devices"},
		{"/v1/faults", "faults that are injected; root and the daemon's own user only"},
		{"/v1/capture", "packets as pcapng, until interrupted; root and the daemon's own user only"},
	}
)

var indexPage = template.Must(template.New("index").Parse(`<!DOCTYPE html>
<title>goroced</title>
<h1>goroced</h1>
<ul>
{{range .}}<li><a href="{{.Path}}">{{.Path}}</a>: {{.Shows}}</li>
{{end}}</ul>
`))

// index lists the pages at /, and at no other path.
func index(mux *http.ServeMux, pages ...page) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = indexPage.Execute(w, pages) // an error means that the client has disconnected
	})
}
