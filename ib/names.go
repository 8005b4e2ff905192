package ib

import "fmt"

// name returns table[i], or kind with the number if the table has no name for it.
func name(table []string, i int, kind string) string {
	if i >= 0 && i < len(table) && table[i] != "" {
		return table[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}

// String returns the status in the words of ibv_wc_status_str.
func (s WCStatus) String() string { return name(wcStatusText[:], int(s), "WCStatus") }

var wcStatusText = [numWCStatus]string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error", "Work Request Flushed Error", "memory management operation error", "bad response error",
	"local access error", "remote invalid request error", "remote access error", "remote operation error",
	"transport retry counter exceeded", "RNR retry counter exceeded", "local RDD violation error",
	"remote invalid RD request", "aborted error", "invalid EE context number", "invalid EE context state",
	"fatal error", "response timeout error", "general error",
}

// String returns the opcode's name in the specification's terms.
func (o WROpcode) String() string { return name(wrOpcodeText[:], int(o), "WROpcode") }

var wrOpcodeText = [...]string{
	WRWrite: "RDMA WRITE", WRWriteImm: "RDMA WRITE with immediate", WRSend: "SEND", WRSendImm: "SEND with immediate",
	WRRead: "RDMA READ", WRCompareSwap: "COMPARE & SWAP", WRFetchAdd: "FETCH & ADD", WRLocalInv: "LOCAL INVALIDATE",
	WRBindMW: "BIND MW", WRSendInv: "SEND with invalidate", WRFlush: "FLUSH", WRAtomicWrite: "ATOMIC WRITE",
}

// String returns the opcode's name in the specification's terms.
func (o WCOpcode) String() string {
	switch o {
	case WCRecv:
		return "RECV"
	case WCRecvImm:
		return "RECV RDMA WRITE with immediate"
	}
	return name(wcOpcodeText[:], int(o), "WCOpcode")
}

var wcOpcodeText = [...]string{
	WCSend: "SEND", WCWrite: "RDMA WRITE", WCRead: "RDMA READ", WCCompareSwap: "COMPARE & SWAP",
	WCFetchAdd: "FETCH & ADD",
	WCBindMW:   "BIND MW", WCLocalInv: "LOCAL INVALIDATE", WCFlush: "FLUSH", WCAtomicWrite: "ATOMIC WRITE",
}
