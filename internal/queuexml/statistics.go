package queuexml

import "time"

// AppendStatistics appends a whole StorageServiceStats document (Get Queue
// Service Stats): the status of the secondary location, and the instant before
// which everything written is to be read there.
func AppendStatistics(dst []byte, status string, synced time.Time) []byte {
	dst = append(dst, Prolog+"<StorageServiceStats><GeoReplication>"...)
	dst = appendElement(dst, "Status", status)
	dst = append(dst, "<LastSyncTime>"...)
	dst = AppendTime(dst, synced)
	return append(dst, "</LastSyncTime></GeoReplication></StorageServiceStats>"...)
}
