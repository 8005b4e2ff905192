package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/goroce/goroce/tests/gobuild"
	"github.com/goroce/goroce/tests/require"
)

// manifests of Kubernetes, as kubectl applies them.
const manifests = ".."

// objects are those of some manifests.
type objects struct {
	namespaces []corev1.Namespace
	daemons    []appsv1.DaemonSet
	services   []corev1.Service
	jobs       []batchv1.Job
}

// add decodes documents. A field that Kubernetes does not know, and one that is there twice, is an error.
func (o *objects) add(t *testing.T, documents string) {
	t.Helper()
	for text := range strings.SplitSeq(documents, "\n---\n") {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(text), &head); err != nil {
			t.Fatal(err)
		}
		switch head.APIVersion + " " + head.Kind {
		case "v1 Namespace":
			o.namespaces = append(o.namespaces, decode[corev1.Namespace](t, text))
		case "apps/v1 DaemonSet":
			o.daemons = append(o.daemons, decode[appsv1.DaemonSet](t, text))
		case "v1 Service":
			o.services = append(o.services, decode[corev1.Service](t, text))
		case "batch/v1 Job":
			o.jobs = append(o.jobs, decode[batchv1.Job](t, text))
		default:
			t.Fatalf("%v is not known here:\n%s", head, text)
		}
	}
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return v
}

// readObjects reads the manifests, one daemon and one example.
func readObjects(t *testing.T) (daemon *appsv1.DaemonSet, service *corev1.Service, job *batchv1.Job) {
	t.Helper()
	var o objects
	for _, file := range []string{"namespace.yaml", "daemonset.yaml", "example/job.yaml"} {
		text, err := os.ReadFile(filepath.Join(manifests, file))
		if err != nil {
			t.Fatal(err)
		}
		o.add(t, string(text))
	}
	if len(o.namespaces) != 1 || len(o.daemons) != 1 || len(o.services) != 1 || len(o.jobs) != 1 {
		t.Fatalf("objects %+v, want one of each", o)
	}
	return &o.daemons[0], &o.services[0], &o.jobs[0]
}

// TestManifests: what an object says of another one is so, and containers have the folders that goroced takes.
func TestManifests(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "goroced-device-plugin")
	build(t, program, ".")
	daemon, service, job := readObjects(t)
	pod := daemon.Spec.Template
	if !maps.Equal(daemon.Spec.Selector.MatchLabels, pod.Labels) {
		t.Errorf("selects %v, want the labels of the pods, %v", daemon.Spec.Selector.MatchLabels, pod.Labels)
	}
	host := map[string]string{} // path of the node by the name of the volume, "" for none
	for _, v := range pod.Spec.Volumes {
		host[v.Name] = ""
		if v.HostPath != nil {
			host[v.Name] = v.HostPath.Path
		}
	}
	mounted := map[string]bool{}
	for _, c := range pod.Spec.Containers {
		for _, m := range c.VolumeMounts {
			path, ok := host[m.Name]
			if !ok || path != "" && path != m.MountPath {
				t.Errorf("%s: %s is mounted from %q, there %v; want the same path", c.Name, m.MountPath, path, ok)
			}
			mounted[m.MountPath] = true
		}
	}
	for flag, path := range map[string]string{"--lib-dir": "/var/lib/goroce/lib", "--cdi-dir": "/var/run/cdi",
		"--kubelet-dir": "/var/lib/kubelet/device-plugins"} {
		help, err := exec.Command(program, "--help").Output()
		words := strings.Join(strings.Fields(string(help)), " ")
		if err != nil || !regexp.MustCompile(flag+`=DIR [^)]*\(`+path+`\)`).MatchString(words) || !mounted[path] {
			t.Errorf("%s is not %s by itself, or that is not mounted: %v\n%s", flag, path, err, help)
		}
	}
	run := job.Spec.Template.Spec
	if run.Subdomain != service.Name || service.Spec.Selector["job-name"] != job.Name ||
		!strings.Contains(run.Containers[0].Args[0], " "+job.Name+"-0."+service.Name+";") {
		t.Errorf("subdomain %s, want %s; service of %v, want %v", run.Subdomain, service.Name, service.Spec.Selector,
			job.Name)
	}
	if n := run.Containers[0].Resources.Limits["goroce.dev/rdma"]; n.Value() != 1 {
		t.Errorf("the example asks for %v, want 1", run.Containers[0].Resources.Limits)
	}
}

// TestKustomize: kubectl makes the same objects of the folders, those of the daemon in their namespace, with the image
// of an overlay.
func TestKustomize(t *testing.T) {
	t.Parallel()
	kubectl := require.Command(t, "kubectl")
	base, err := filepath.Abs(manifests)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	base, err = filepath.Rel(dir, base) // kustomize takes relative paths only
	if err != nil {
		t.Fatal(err)
	}
	overlay := "resources: [" + base + ", " + base + "/example]\n" +
		"images: [{name: goroced, newName: here/goroced, newTag: v1}]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(kubectl, "kustomize", dir)
	cmd.Env = append(os.Environ(), "KUBECONFIG=/dev/null", "HOME="+dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var o objects
	o.add(t, strings.TrimSpace(string(out)))
	if len(o.namespaces) != 1 || len(o.daemons) != 1 || len(o.services) != 1 || len(o.jobs) != 1 ||
		o.daemons[0].Namespace != o.namespaces[0].Name {
		t.Fatalf("objects %+v, want one of each in one namespace", o)
	}
	for _, c := range o.daemons[0].Spec.Template.Spec.Containers {
		if c.Image != "here/goroced:v1" {
			t.Errorf("%s has the image %s, want %s", c.Name, c.Image, "here/goroced:v1")
		}
	}
}

// build builds the program whose package is in a folder.
func build(t *testing.T, path, folder string) {
	t.Helper()
	if err := gobuild.Program(path, folder); err != nil {
		t.Fatal(err)
	}
}
