// Package linktest holds what every Link must keep, as tests ([Run]), and the
// network namespaces to try drivers in ([NewVeth]).
package linktest
