// Command guest is the lab's agent in a virtual machine: started by the init
// script once rxe0 is up, it runs the commands that arrive on the virtio-serial
// port, until the machine is switched off.
package main

import (
	"log"
	"os"

	"github.com/goroce/goroce/tests/rxe/lab/control"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("lab: ")
	port, err := os.OpenFile("/dev/vport0p1", os.O_RDWR, 0)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(control.Serve(port))
}
