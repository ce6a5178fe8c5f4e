package emulator

import "time"

// formats of times in signatures, access policies and requests for keys (Create
// a service SAS, "Specify the signature validity interval"). Parsing takes a
// fraction of the seconds too.
var timeFormats = [...]string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04Z07:00", "2006-01-02"}

// parseInstant reads a time of ISO 8601 in one of the forms that the service
// takes.
func parseTime(text string) (time.Time, bool) {
	if len(text) > len("2006-01-02T15:04:05.0000000+07:00") {
		return time.Time{}, false
	}
	for _, format := range timeFormats {
		if t, err := time.Parse(format, text); err == nil {
			t = t.UTC() // which may be in the year before or after those that can be written
			return t, t.Year() >= 1 && t.Year() <= 9999
		}
	}
	return time.Time{}, false
}

// formatInstant writes a time as the service writes those it was not given.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
