package topology

import "strings"

// slotCount is fixed by the cluster protocol.
const slotCount = 16384

// SlotRange is a run of hash slots, both ends included.
type SlotRange struct{ First, Last int }

// Slot returns the cluster hash slot of a key as servers compute it: CRC16 of
// the text between the first '{' and the first '}' after it, or of the whole
// key where there is no such text. The empty key is in slot 0; client
// libraries that pick a random node for it are wrong.
func Slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	return int(crc16(key)) % slotCount
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, start 0, nothing reflected.
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
