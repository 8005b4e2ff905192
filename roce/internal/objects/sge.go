package objects

import (
	"fmt"
	"math"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// SGE implements ib.MR's SGE.
func SGE(mr ib.MR, off, n int) ib.SGE {
	if off < 0 || n < 0 || off > mr.Len() || n > mr.Len()-off || uint64(n) > math.MaxUint32 {
		panic(driver.Refuse(fmt.Sprintf("SGE(%d, %d) of a region", off, n), "range",
			fmt.Sprintf("%d to %d", off, off+n),
			fmt.Sprintf("within 0 to %d, and less than 4 GiB", mr.Len()), ib.ErrInvalid))
	}
	return ib.SGE{Addr: mr.Addr() + uint64(off), Length: uint32(n), LKey: mr.LKey()}
}
