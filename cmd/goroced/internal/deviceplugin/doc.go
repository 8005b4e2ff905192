//go:build linux

// Package deviceplugin offers the daemon of a Kubernetes node to the containers of its pods, as a device plugin of the
// kubelet: `goroced device-plugin`. A container that asks for goroce.dev/rdma gets the folder of the daemon's socket,
// the libraries for programs in C, and the variables that lead to both, so that an unmodified program uses verbs.
//
//	err := deviceplugin.Run(ctx, deviceplugin.Options{Socket: "/run/goroce/goroced.sock", Shares: 32, ...})
//
// A device of the kubelet is a share: a container that has one may use the daemon as others do. All shares are healthy
// while the daemon answers.
//
// The protocol is v1beta1 of k8s.io/kubelet. The same is described for container runtimes, in a file of the Container
// Device Interface (CDI).
package deviceplugin
