//go:build linux

package dropin

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// declarations are what a header says of the binary interface.
type declarations struct {
	structs map[string]layout
	values  map[string]int64 // of enumerators
}

// layout is how a struct lies in memory.
type layout struct {
	size   int64
	fields map[string]extent // those of structs and unions in it, too: both a and a.b
}

// extent is where a field lies, in bytes from the start.
type extent struct{ offset, size int64 }

// declared returns what a header declares, as the debugging information of an object says that a compiler takes it.
func declared(t testing.TB, cc, header string, flags ...string) declarations {
	t.Helper()
	object := filepath.Join(t.TempDir(), "header.o")
	args := append([]string{"-std=gnu11", "-g", "-fno-eliminate-unused-debug-types", "-c", "-o", object, "-x", "c",
		"-"}, flags...)
	cmd := exec.Command(cc, args...)
	cmd.Stdin = strings.NewReader(fmt.Sprintf("#include <%s>\n", header))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	file, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := file.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	d := declarations{map[string]layout{}, map[string]int64{}}
	if err := d.read(data); err != nil {
		t.Fatal(err)
	}
	return d
}

// read reads all structs that have a name, and all enumerators.
func (d *declarations) read(data *dwarf.Data) error {
	for r := data.Reader(); ; {
		entry, err := r.Next()
		if err != nil || entry == nil {
			return err
		}
		switch entry.Tag {
		case dwarf.TagStructType, dwarf.TagUnionType, dwarf.TagEnumerationType:
		default:
			continue
		}
		typ, err := data.Type(entry.Offset)
		if err != nil {
			return err
		}
		switch typ := typ.(type) {
		case *dwarf.EnumType:
			for _, v := range typ.Val {
				d.values[v.Name] = v.Val
			}
		case *dwarf.StructType:
			if typ.StructName != "" && !typ.Incomplete {
				l := layout{typ.ByteSize, map[string]extent{}}
				l.add("", 0, typ)
				d.structs[typ.StructName] = l
			}
		}
	}
}

// add adds the fields of a struct, and those of structs in it.
func (l *layout) add(prefix string, at int64, s *dwarf.StructType) {
	for _, f := range s.Field {
		name := prefix + f.Name
		if f.Name != "" {
			l.fields[name] = extent{at + f.ByteOffset, f.Type.Size()}
			name += "."
		}
		if inner, ok := f.Type.(*dwarf.StructType); ok {
			l.add(name, at+f.ByteOffset, inner)
		}
	}
}

// grows are the structs that a library may make, or read, larger or smaller than the program has them: their size is
// told, or the library alone makes them, or a program of an older release does not look behind their end.
var grows = map[string]bool{"ibv_port_attr": true, "ibv_qp_ex": true, "ibv_srq_init_attr_ex": true}

// fromEnd are the fields by their distance from the end: verbs_context grows at its front.
func (l *layout) fromEnd() layout {
	fields := map[string]extent{}
	for name, e := range l.fields {
		fields[name] = extent{e.offset - l.size, e.size}
	}
	return layout{l.size, fields}
}

// compareLayout says where a struct of ours is not as a release has it.
func compareLayout(name string, ours, theirs layout) (differ []string) {
	end := func(l layout, e extent) bool { return e.offset >= l.size } // behind all that the release has
	if name == "verbs_context" {
		first := -theirs.size
		ours, theirs = ours.fromEnd(), theirs.fromEnd()
		end = func(_ layout, e extent) bool { return e.offset < first }
		if ours.size < theirs.size {
			differ = append(differ, fmt.Sprintf("%s has %d bytes, want at least %d", name, ours.size, theirs.size))
		}
	} else if ours.size != theirs.size && (!grows[name] || ours.size < theirs.size) {
		differ = append(differ, fmt.Sprintf("%s has %d bytes, want %d", name, ours.size, theirs.size))
	}
	for field, e := range ours.fields {
		want, known := theirs.fields[field]
		switch {
		case strings.HasPrefix(field[strings.LastIndexByte(field, '.')+1:], "_"): // what is not used
		case !known && !end(theirs, e):
			differ = append(differ, fmt.Sprintf("%s.%s is not in theirs", name, field))
		case known && e != want:
			differ = append(differ, fmt.Sprintf("%s.%s lies at %v, want %v", name, field, e, want))
		}
	}
	return differ
}

// compare says where ours are not as a release has them, and how much was compared.
func compare(ours, theirs declarations) (differ []string, structs, fields, values int) {
	for name, l := range ours.structs {
		want, ok := theirs.structs[name]
		if !ok {
			differ = append(differ, "theirs have no "+name)
			continue
		}
		structs++
		for field := range l.fields {
			if _, ok := want.fields[field]; ok {
				fields++
			}
		}
		differ = append(differ, compareLayout(name, l, want)...)
	}
	for name := range maps.Keys(ours.values) {
		want, ok := theirs.values[name]
		if ok {
			values++
		}
		if ok && ours.values[name] != want {
			differ = append(differ, fmt.Sprintf("%s is %d, want %d", name, ours.values[name], want))
		}
	}
	return differ, structs, fields, values
}
