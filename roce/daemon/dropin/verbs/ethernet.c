/*
 * The Ethernet address that a GID leads to. RoCE over UDP leaves that to the kernel; programs may ask nevertheless.
 * That of a group follows from the GID, and so does that of a link-local address which was made of it. For IPv4 there
 * is the kernel's table of neighbours. Other addresses of IPv6 are EHOSTUNREACH.
 */
#include "lib.h"

#include <arpa/inet.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAC = 6 };

/* is_mapped reports whether a GID is an IPv4 address, ::ffff:a.b.c.d. */
static bool is_mapped(const uint8_t *gid)
{
	static const uint8_t prefix[12] = {[10] = 0xFF, [11] = 0xFF};

	return memcmp(gid, prefix, sizeof(prefix)) == 0;
}

/* of_group maps a group as RFC 1112 and RFC 2464 do. */
static bool of_group(const uint8_t *gid, uint8_t mac[MAC])
{
	if (is_mapped(gid) && gid[12] >> 4 == 14) {
		memcpy(mac, (uint8_t[MAC]){0x01, 0x00, 0x5E, gid[13] & 0x7F, gid[14], gid[15]}, MAC);
		return true;
	}
	if (gid[0] != 0xFF)
		return false;
	memcpy(mac, (uint8_t[MAC]){0x33, 0x33, gid[12], gid[13], gid[14], gid[15]}, MAC);
	return true;
}

/* of_interface_id reads the address that a link-local GID was made of (RFC 4291, EUI-64). */
static bool of_interface_id(const uint8_t *gid, uint8_t mac[MAC])
{
	if (gid[0] != 0xFE || (gid[1] & 0xC0) != 0x80 || gid[11] != 0xFF || gid[12] != 0xFE)
		return false;
	memcpy(mac, (uint8_t[MAC]){gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15]}, MAC);
	return true;
}

/* of_neighbour asks the kernel's table of IPv4 neighbours: EHOSTUNREACH if it has no complete entry. rdma-core's
 * library makes the kernel look for the neighbour then, this one does not. */
static int of_neighbour(const uint8_t *gid, const char *netif, uint8_t mac[MAC])
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct arpreq r = {0};
	int fd, err;

	memcpy(&to.sin_addr, gid + 12, 4);
	memcpy(&r.arp_pa, &to, sizeof(to));
	memcpy(r.arp_dev, netif, sizeof(r.arp_dev) - 1);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	err = ioctl(fd, SIOCGARP, &r) < 0 ? errno : r.arp_flags & ATF_COM ? 0 : EHOSTUNREACH;
	close(fd);
	memcpy(mac, r.arp_ha.sa_data, MAC);
	return err == ENXIO ? EHOSTUNREACH : err;
}

/* vid is left as it is: the daemon's interfaces are without VLAN tags of their own. */
EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *v, struct ibv_ah_attr *attr, uint8_t mac[MAC],
		uint16_t *vid __attribute__((unused)))
{
	const uint8_t *gid = attr->grh.dgid.raw;
	struct goroce_gid_entry row;
	int err;

	if (!attr->is_global)
		return EINVAL;
	if (of_group(gid, mac) || of_interface_id(gid, mac))
		return 0;
	if (!is_mapped(gid))
		return EHOSTUNREACH;
	err = gid_at(v, attr->port_num, attr->grh.sgid_index, &row);
	return err ? err : of_neighbour(gid, row.netif, mac);
}
