package emulator

import "time"

// formats of times in signatures, access policies and requests for keys (Create
// a service SAS, "Specify the signature validity interval"). Parsing takes a
// fraction of the seconds too.
var formats = [...]string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04Z07:00", "2006-01-02"}

// parseInstant reads a time of ISO 8601 in one of the forms that the service
// takes.
func parseInstant(text string) (time.Time, bool) {
	if len(text) > len("2006-01-02T15:04:05.0000000+07:00") {
		return time.Time{}, false
	}
	for _, format := range formats {
		if t, err := time.Parse(format, text); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// formatInstant writes a time as the service writes those it was not given.
func formatInstant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
