package launch

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// rdmacm is the library of programs that connect by address. It is the distribution's own: the preload serves the
// device file that it opens.
const rdmacm = "librdmacm.so.1"

// MissingLibraryError says that a program needs a library of the distribution that the machine does not have.
type MissingLibraryError struct{ Library string }

func (e *MissingLibraryError) Error() string {
	return fmt.Sprintf("the program needs %s, which this machine does not have: install package librdmacm1 "+
		"(Debian, Ubuntu, SUSE), librdmacm (Fedora, RHEL) or rdma-core (Arch)", e.Library)
}

// needs returns a *MissingLibraryError if the program is linked with the library, and the dynamic linker does not find
// it in this environment. It returns nil for files that are not ELF, such as scripts.
func needs(program, library string, environ []string) error {
	file, err := elf.Open(program)
	if err != nil {
		return nil
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil || !slices.Contains(libraries, library) {
		return nil
	}
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		name, err := exec.LookPath(interpreter(segment))
		if err != nil {
			return nil
		}
		list := exec.Command(name, "--list", program) // as ldd does; the program itself does not run
		list.Env = environ
		out, _ := list.CombinedOutput()
		if strings.Contains(string(out), library+": cannot open shared object file") {
			return &MissingLibraryError{library}
		}
	}
	return nil
}

// longestPath is Linux's PATH_MAX.
const longestPath = 4096

// interpreter returns the path of the dynamic linker that the segment names.
func interpreter(segment *elf.Prog) string {
	path := make([]byte, min(segment.Filesz, longestPath))
	n, _ := segment.ReadAt(path, 0)
	name, _, _ := bytes.Cut(path[:n], []byte{0})
	return string(name)
}
