package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// service answers the kubelet. GetPreferredAllocation and PreStartContainer are not offered: all shares are alike.
type service struct {
	kubelet.UnimplementedDevicePluginServer
	shares *shares
	gift   gift
}

// GetDevicePluginOptions says that there are no options.
func (s *service) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return &kubelet.DevicePluginOptions{}, nil
}

// ListAndWatch sends the list of shares, at once and whenever their health changes, until the kubelet or the server
// ends the call.
func (s *service) ListAndWatch(_ *kubelet.Empty,
	stream grpc.ServerStreamingServer[kubelet.ListAndWatchResponse]) error {
	for {
		list, changed := s.shares.list()
		if err := stream.Send(list); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Allocate says what containers get. It does not matter which shares: the kubelet keeps account of them.
func (s *service) Allocate(_ context.Context, r *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	answer := &kubelet.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		for _, name := range c.DevicesIds {
			if !s.shares.has(name) {
				return nil, status.Errorf(codes.NotFound, "%s has no device %.80q; the last one is %s", resource, name,
					id(s.shares.n-1))
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, s.gift.response())
	}
	return answer, nil
}
