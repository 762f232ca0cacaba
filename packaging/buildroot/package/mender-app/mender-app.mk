################################################################################
#
# mender-app
#
################################################################################

MENDER_APP_VERSION = 1.0.0-rc1
MENDER_APP_SITE = https://github.com/mender-app/mender-app/releases/download/v$(MENDER_APP_VERSION)
# The sources with the modules that they need: the build asks no network.
MENDER_APP_SOURCE = mender-app-$(MENDER_APP_VERSION)-vendored.tar.gz
MENDER_APP_LICENSE = Apache-2.0, others in THIRD-PARTY-NOTICES
MENDER_APP_LICENSE_FILES = LICENSE packaging/THIRD-PARTY-NOTICES
MENDER_APP_DEPENDENCIES = host-go

# The release's name for the machine.
MENDER_APP_ARCH = $(if $(BR2_arm),arm-v7,$(GO_GOARCH))
MENDER_APP_PROGRAMS = app docker-compose mender-app
MENDER_APP_PROGRAMS += $(if $(BR2_PACKAGE_MENDER_APP_K8S),k8s)
MENDER_APP_SUBMODULES = $(if $(BR2_PACKAGE_MENDER_APP_SUBMODULES),deb systemd python executable)

MENDER_APP_MAKE_OPTS = \
	GO="$(HOST_DIR)/bin/go" \
	PROGRAMS="$(strip $(MENDER_APP_PROGRAMS))" \
	SUBMODULES="$(MENDER_APP_SUBMODULES)"

define MENDER_APP_BUILD_CMDS
	$(HOST_GO_TARGET_ENV) $(MAKE) -C $(@D) $(MENDER_APP_MAKE_OPTS) cross-$(MENDER_APP_ARCH)
endef

define MENDER_APP_INSTALL_TARGET_CMDS
	$(TARGET_MAKE_ENV) $(MAKE) -C $(@D) $(MENDER_APP_MAKE_OPTS) \
		FROM=build/linux-$(MENDER_APP_ARCH) DESTDIR=$(TARGET_DIR) install
endef

# Without systemd, a script does at boot what its units do.
define MENDER_APP_INSTALL_INIT_SYSV
	$(INSTALL) -D -m 0755 $(MENDER_APP_PKGDIR)/S70mender-app \
		$(TARGET_DIR)/etc/init.d/S70mender-app
endef

# The group of the sockets of mender-app serve.
define MENDER_APP_USERS
	- -1 mender-app -1 - - - - -
endef

$(eval $(generic-package))
