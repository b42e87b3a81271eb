package codec

import (
	"errors"
	"fmt"
	"reflect"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// ErrPlainInput is the error of an input that must be encrypted and is not: Everpost has not made it.
var ErrPlainInput = errors.New("the input is not encrypted, so Everpost has not made it")

// inputs is a converter that refuses the inputs of workflows and activities in plain.
type inputs struct {
	converter.DataConverter

	types map[reflect.Type]bool
}

// SealedInputs returns a converter over one of this package's codec that refuses plain values of these types with ErrPlainInput. They are the
// types of the inputs of workflows and activities: who may start workflows, but has no key, cannot have one run. Everything else is
// converted as before. That are the signals that people send by hand, and the results in histories from before encryption was switched on.
func SealedInputs(over converter.DataConverter, of ...any) converter.DataConverter {
	types := make(map[reflect.Type]bool, len(of))
	for _, value := range of {
		types[reflect.TypeOf(value)] = true
	}
	return &inputs{over, types}
}

// FromPayload implements converter.DataConverter.
func (c *inputs) FromPayload(payload *commonpb.Payload, valuePtr any) error {
	if err := c.check(payload, valuePtr); err != nil {
		return err
	}
	return c.DataConverter.FromPayload(payload, valuePtr) //nolint:wrapcheck // as the converter below
}

// FromPayloads implements converter.DataConverter.
func (c *inputs) FromPayloads(payloads *commonpb.Payloads, valuePtrs ...any) error {
	for i, payload := range payloads.GetPayloads() {
		if i < len(valuePtrs) {
			if err := c.check(payload, valuePtrs[i]); err != nil {
				return err
			}
		}
	}
	return c.DataConverter.FromPayloads(payloads, valuePtrs...) //nolint:wrapcheck // as the converter below
}

func (c *inputs) check(payload *commonpb.Payload, valuePtr any) error {
	t := reflect.TypeOf(valuePtr)
	if t == nil || t.Kind() != reflect.Pointer || !c.types[t.Elem()] || isEncrypted(payload) {
		return nil
	}
	return fmt.Errorf("read an input of the type %s: %w", t.Elem(), ErrPlainInput)
}

func isEncrypted(payload *commonpb.Payload) bool {
	return string(payload.GetMetadata()[converter.MetadataEncoding]) == encoding
}
