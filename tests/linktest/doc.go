// Package linktest has tests of what every Link must do ([Run]), and network namespaces to test drivers in ([NewVeth]).
package linktest
