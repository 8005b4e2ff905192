package lab

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/goroce/goroce/tests/rxe/lab/control"
)

// Result is the output and the exit code of a command in a guest.
type Result = control.Result

// Process is a running command in a guest.
type Process = control.Process

// ExitError is the error of a command that did not exit with code 0.
type ExitError struct {
	VM   string
	Args []string
	Result
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("lab: %s: %s: exit code %d\n%s%s", e.VM, strings.Join(e.Args, " "), e.ExitCode, e.Stdout,
		e.Stderr)
}

// Run runs a program in the guest and waits for its end. An exit code other
// than 0 is no error. The program is killed when ctx ends, or after
// control.DefaultTimeout if ctx has no deadline; the error then matches ctx's. A
// guest that does not even confirm the kill is ended, and the error is *DownError.
func (vm *VM) Run(ctx context.Context, name string, args ...string) (Result, error) {
	return vm.run(ctx, nil, append([]string{name}, args...))
}

// Output is Run for programs that must succeed: it returns their standard
// output, and an *ExitError for an exit code other than 0.
func (vm *VM) Output(ctx context.Context, name string, args ...string) (string, error) {
	result, err := vm.Run(ctx, name, args...)
	if err != nil {
		return "", err
	}
	if result.ExitCode != 0 {
		return "", &ExitError{VM: vm.Name, Args: append([]string{name}, args...), Result: result}
	}
	return result.Stdout, nil
}

// Start starts a program in the guest, a server for example, with the same
// timeout as Run. With the context of a test the program ends with the test; that
// context has no deadline, so DefaultTimeout applies.
func (vm *VM) Start(ctx context.Context, name string, args ...string) (*Process, error) {
	p, err := vm.control.Start(ctx, nil, append([]string{name}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", vm.Name, err)
	}
	return p, nil
}

// Until runs a shell condition again and again in the guest until it succeeds
// or ctx ends.
func (vm *VM) Until(ctx context.Context, condition string) error {
	loop := fmt.Sprintf("until { %s; } >/dev/null 2>&1; do usleep 20000; done", condition)
	if _, err := vm.Output(ctx, "sh", "-c", loop); err != nil {
		return fmt.Errorf("wait until %q: %w", condition, err)
	}
	return nil
}

// WaitListen waits until a server in the guest listens on the TCP port.
func (vm *VM) WaitListen(ctx context.Context, port int) error {
	return vm.Until(ctx, fmt.Sprintf("netstat -ltn | grep -q ':%d '", port))
}

// WaitListenCM waits until a server in the guest listens on the port with
// rdma_listen, in the port space for TCP or for UDP.
func (vm *VM) WaitListenCM(ctx context.Context, port int) error {
	return vm.Until(ctx, fmt.Sprintf("rdma resource show cm_id | grep LISTEN | grep -q ':%d '", port))
}

// CopyIn copies a file of this machine into the guest, as an executable.
func (vm *VM) CopyIn(ctx context.Context, from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	result, err := vm.run(ctx, data, []string{"sh", "-c", `cat >"$0" && chmod 755 "$0"`, to})
	if err == nil && result.ExitCode != 0 {
		err = &ExitError{VM: vm.Name, Args: []string{"cat", ">", to}, Result: result}
	}
	return err
}

func (vm *VM) run(ctx context.Context, stdin []byte, args []string) (Result, error) {
	p, err := vm.control.Start(ctx, stdin, args...)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", vm.Name, err)
	}
	result, err := p.Wait()
	if err != nil {
		err = fmt.Errorf("%s: %w", vm.Name, err)
	}
	return result, err
}
