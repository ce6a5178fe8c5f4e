package emulator

// Limits is the former name of [Quotas].
//
// Deprecated: Use [Quotas]. The next release removes Limits.
//
//go:fix inline
type Limits = Quotas

// ParseLimits is the former name of [ParseQuotas].
//
// Deprecated: Use [ParseQuotas]. The next release removes ParseLimits.
//
//go:fix inline
func ParseLimits(text string) (Quotas, error) { return ParseQuotas(text) }
