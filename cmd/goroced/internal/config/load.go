package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/similar"
	"github.com/goroce/goroce/roce/daemon/machine"
)

// Sources are the sources of a configuration.
type Sources struct {
	// File must exist if it is set. "" stands for the value of GOROCED_CONFIG or else DefaultFile, if that exists.
	File    string
	Environ []string // as os.Environ returns it
	Flags   []Flag   // later ones override earlier ones
	UID     int      // effective user ID of the daemon
}

// Flag is a setting from the command line.
type Flag struct {
	Name  string // for errors: "--socket"
	Key   string // as in the file; "device.netif" and so on for the only device
	Value string
}

// fileVariable is the environment variable with the path of the file.
const fileVariable = envPrefix + "CONFIG"

// Process returns the sources of this process, with the given flags.
func Process(file string, flags []Flag) Sources {
	return Sources{File: file, Environ: os.Environ(), Flags: flags, UID: os.Geteuid()}
}

// DefaultFile returns the path of the file that is read by default; "" if there is none.
func (s Sources) DefaultFile() string {
	if s.UID == 0 {
		return "/etc/goroce/goroced.toml"
	}
	dir := s.getenv("XDG_CONFIG_HOME")
	if home := s.getenv("HOME"); !filepath.IsAbs(dir) && filepath.IsAbs(home) {
		dir = filepath.Join(home, ".config")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "goroce", "goroced.toml")
}

func (s Sources) getenv(name string) string {
	for _, v := range slices.Backward(s.Environ) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// Load loads and checks a configuration. The error joins an *Error for each problem, or says that a file cannot be
// read.
func Load(s Sources) (*Config, error) {
	c, errs := Examine(s)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return c, nil
}

// Examine is Load with the errors one by one, and with what could be understood in spite of them.
func Examine(s Sources) (*Config, []error) {
	c := defaults(s.UID, s.getenv, machine.Read())
	var errs []error
	f, err := s.file()
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		errs = append(errs, several.Unwrap()...)
	} else if err != nil {
		errs = append(errs, err)
	}
	if f != nil {
		errs = append(append(errs, f.quotes()...), c.applyFile(f)...)
	}
	texts, unknown := s.texts()
	errs = append(append(errs, unknown...), c.applyTexts(texts)...)
	if len(errs) == 0 {
		errs = c.check()
	}
	return c, errs
}

// String names the sources: the file, or where there could be one, and variables of the environment.
func (s Sources) String() string {
	name := s.File
	if name == "" {
		name = s.getenv(fileVariable)
	}
	if name == "" {
		name = s.DefaultFile()
		if _, err := os.Stat(name); name == "" || errors.Is(err, fs.ErrNotExist) {
			missing := cmp.Or(name, "place for a file, as HOME is not set")
			name = "the default configuration (there is no " + missing + ")"
		}
	}
	texts, _ := s.texts()
	var variables []string
	for _, t := range texts[:len(texts)-len(s.Flags)] {
		variables = append(variables, t.Name)
	}
	if len(variables) > 0 {
		name += " with " + strings.Join(variables, ", ")
	}
	return name
}

// file reads the configuration file; it returns nil without an error if there is none.
func (s Sources) file() (*file, error) {
	name := s.File
	if name == "" {
		name = s.getenv(fileVariable)
	}
	if name != "" {
		return readFile(name)
	}
	if name = s.DefaultFile(); name == "" {
		return nil, nil
	}
	f, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// texts returns the settings of the environment, then those of the flags. The errors are about unknown variables.
func (s Sources) texts() (texts []Flag, errs []error) {
	keys := map[string]string{fileVariable: ""} // not a setting
	for _, st := range slices.Concat(settings(&Config{}), deviceSettings(deviceKey+".", &Device{})) {
		keys[variable(st.key)] = st.key
	}
	for _, v := range s.Environ {
		name, value, _ := strings.Cut(v, "=")
		switch key, known := keys[name]; {
		case !strings.HasPrefix(name, envPrefix):
		case !known:
			errs = append(errs, &Error{Source: name, Allowed: nearVariables(slices.Sorted(maps.Keys(keys)), name),
				Err: ErrUnknownKey})
		case key == "socket" && value == "": // is as if it were not there, as for programs that look for the daemon
		case key != "":
			texts = append(texts, Flag{name, key, value})
		}
	}
	slices.SortFunc(texts, func(a, b Flag) int { return strings.Compare(a.Name, b.Name) })
	return append(texts, s.Flags...), errs
}

// nearVariables returns the variables that share the most leading words with name.
func nearVariables(all []string, name string) string {
	for {
		name = name[:strings.LastIndexByte(strings.TrimSuffix(name, "_"), '_')+1]
		if near := slices.DeleteFunc(slices.Clone(all),
			func(v string) bool { return !strings.HasPrefix(v, name) }); len(near) > 0 {
			return strings.Join(near, ", ")
		}
	}
}

// applyFile stores the settings of a file.
func (c *Config) applyFile(f *file) (errs []error) {
	c.Devices = make([]Device, f.devices)
	all := settings(c)
	for i := range c.Devices {
		all = append(all, deviceSettings(fmt.Sprintf("%s[%d].", deviceKey, i), &c.Devices[i])...)
	}
	for _, key := range f.keys {
		source := Error{Source: f.name, Line: f.line(key), Key: key, Value: f.values[key]}
		errs = append(errs, c.apply(all, source, func(v value) error { return v.set(source.Value) })...)
	}
	return errs
}

// applyTexts stores the settings of environment and flags. Together these describe at most one device, which replaces
// those of the file.
func (c *Config) applyTexts(texts []Flag) (errs []error) {
	var own Device
	all := slices.Concat(settings(c), deviceSettings(deviceKey+".", &own))
	replaced := false
	for _, t := range texts {
		replaced = replaced || strings.HasPrefix(t.Key, deviceKey+".")
		source := Error{Source: t.Name, Key: t.Key, Value: t.Value}
		errs = append(errs, c.apply(all, source, func(v value) error { return v.text(t.Value) })...)
	}
	if !replaced {
		return errs
	}
	c.Devices = []Device{own}
	maps.DeleteFunc(c.origins, func(key string, _ origin) bool { return strings.HasPrefix(key, deviceKey+"[") })
	for _, t := range texts {
		if key, ok := strings.CutPrefix(t.Key, deviceKey+"."); ok {
			c.origins[deviceKey+"[0]."+key] = origin{source: t.Name}
		}
	}
	return errs
}

// apply stores one value in its setting, and records its source.
func (c *Config) apply(all []setting, source Error, store func(value) error) []error {
	i := slices.IndexFunc(all, func(s setting) bool { return s.key == source.Key })
	if i < 0 {
		source.Value, source.Err = nil, ErrUnknownKey
		source.Allowed, source.Meant = near(all, source.Key)
		return []error{&source}
	}
	if err := store(all[i].value); err != nil {
		source.Err, source.Allowed = err, all[i].value.allowed
		return []error{&source}
	}
	c.origins[source.Key] = origin{source.Source, source.Line}
	return nil
}

// near returns the keys in the table of an unknown key, or if there is no such table, in the table around it, and which
// of them was meant, if it is like one.
func near(all []setting, key string) (allowed, meant string) {
	prefix := key[:strings.LastIndexByte(key, '.')+1]
	var names []string
	for _, s := range all {
		if rest, ok := strings.CutPrefix(s.key, prefix); ok {
			if name, _, _ := strings.Cut(rest, "."); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return near(all, strings.TrimSuffix(prefix, "."))
	}
	if prefix == "" && !slices.Contains(names, deviceKey) {
		names = append(names, deviceKey)
	}
	word := key[len(prefix):]
	if name := similar.Meant(word, names); name != "" && name != word { // the same is a table in place of a value
		meant = prefix + name
	}
	return strings.Join(names, ", "), meant
}
