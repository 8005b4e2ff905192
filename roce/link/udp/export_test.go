package udp

// RecvGroups is how many sockets of groups a call of Recv receives from.
const RecvGroups = recvGroups
