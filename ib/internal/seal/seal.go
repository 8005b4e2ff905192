// Package seal keeps the interfaces of package ib from being implemented by other modules, so that they can get methods
// without breaking a program. Packages of goroce embed ib/driver.Implementation.
package seal

// Sealed is a part of each interface.
type Sealed interface{ sealed() }

// Implementation is embedded by what implements an interface.
type Implementation struct{}

func (Implementation) sealed() {}
