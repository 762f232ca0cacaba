package docker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// expireLabel is on leases that end by themselves (containerd,
// core/metadata/gc.go): an engine takes such a lease of 24 hours for a load, a pull
// or a save. The leases of its containers do not have this label.
const expireLabel = "containerd.io/gc.expire"

// endLeases ends the leases that expire by themselves, waits for containerd's
// garbage collection, and returns how many there were. Loads and pulls that still
// run lose what they have so far, and fail.
func (s *snapshots) endLeases(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	reply, err := s.call(ctx, leaseService+"List", nil)
	if err != nil {
		return 0, fmt.Errorf("leases: %w", err)
	}
	ids, err := expiring(reply)
	if err != nil {
		return 0, fmt.Errorf("leases: %w", err)
	}
	for i, id := range ids {
		// Field 2 is sync: the call returns when the collection is done.
		message := append(protoFields{{1, id}}.message(), 2<<3|varint, 1)
		_, err := s.call(ctx, leaseService+"Delete", message)
		var failed *grpcError
		if err != nil && !(errors.As(err, &failed) && failed.status == grpcNotFound) {
			return i, fmt.Errorf("lease %s: %w", id, err)
		}
	}
	return len(ids), nil
}

// expiring reads a ListResponse, which has in field 1 a lease (id 1, labels 3:
// key 1, value 2), repeated, and returns the ids of those that end by themselves.
func expiring(reply []byte) (ids []string, err error) {
	leases, err := readProto(reply)
	if err != nil {
		return nil, err
	}
	for _, l := range leases {
		if l.number != 1 {
			continue
		}
		fields, err := readProto([]byte(l.value))
		if err != nil {
			return nil, err
		}
		for _, f := range fields {
			if f.number != 3 {
				continue
			}
			label, err := readProto([]byte(f.value))
			if err != nil {
				return nil, err
			}
			if label.get(1) == expireLabel {
				ids = append(ids, fields.get(1))
			}
		}
	}
	return ids, nil
}
