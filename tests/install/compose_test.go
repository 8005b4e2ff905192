package install

import (
	"os"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestCompose reads the compose file: what the containers share is what testdata/containers.sh has shown to do.
func TestCompose(t *testing.T) {
	text, err := os.ReadFile("../../dist/container/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type service struct {
		Image, User, Pid string
		NetworkMode      string `yaml:"network_mode"`
		Profiles         []string
		Command, Volumes []string
		Environment      map[string]string
	}
	var file struct {
		Services map[string]service
		Volumes  map[string]any
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	const image = "localhost/goroced:${VERSION:?}"
	for name, profile := range map[string]string{"ping": "pingpong", "pong": "pingpong", "daemon": "sidecar",
		"server": "sidecar", "client": "sidecar"} {
		s := file.Services[name]
		if !slices.Equal(s.Profiles, []string{profile}) || (s.Image == image) == (s.User != "") {
			t.Errorf("%s: %+v", name, s)
		}
		if profile == "sidecar" && (len(s.Volumes) != 2 || s.Volumes[0] != "sockets:/run/goroce") {
			t.Errorf("%s has the volumes %v", name, s.Volumes)
		}
	}
	client := file.Services["client"]
	if client.Pid != "service:daemon" || client.NetworkMode != "service:daemon" || client.User != "65532:65532" ||
		client.Environment["LD_PRELOAD"] != "/usr/lib/goroce/libgoroce-sys.so" || len(file.Volumes) != 2 {
		t.Errorf("the application is %+v", client)
	}
}
