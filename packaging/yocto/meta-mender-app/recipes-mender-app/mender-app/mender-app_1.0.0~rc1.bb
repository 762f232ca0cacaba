# From source, with the modules that it needs in the archive: for branches with Go 1.26.3 or
# newer. Elsewhere take mender-app-bin, the release's own programs.
require mender-app.inc

GO_IMPORT = "github.com/mender-app/mender-app"
MENDER_APP_GO = "1.26.3"

SRC_URI = "${MENDER_APP_RELEASE}/mender-app-${MENDER_APP_VERSION}-vendored.tar.gz;subdir=${BP}/src/${GO_IMPORT};striplevel=1"
SRC_URI[sha256sum] = "${MENDER_APP_SUM_vendored}"
S = "${@d.getVar('UNPACKDIR') or d.getVar('WORKDIR')}/${BP}"
LIC_FILES_CHKSUM = "file://src/${GO_IMPORT}/LICENSE;md5=175792518e4ac015ab6696d16c4f607e"

inherit go-mod

# Branches whose Go is older; a distribution with a newer one there sets GOVERSION.
MENDER_APP_OLD_GO = "scarthgap styhead walnascar whinlatter"

python () {
    have = (d.getVar('GOVERSION') or '').rstrip('%')
    if have:
        parts = [int(n) for n in have.split('.') if n]
        old = parts < [int(n) for n in d.getVar('MENDER_APP_GO').split('.')][:len(parts)]
    else:
        old = bb.utils.contains_any('LAYERSERIES_CORENAMES', d.getVar('MENDER_APP_OLD_GO'), True, False, d)
    if old:
        raise bb.parse.SkipRecipe('it needs Go %s or newer: take mender-app-bin' % d.getVar('MENDER_APP_GO'))
}

# The sub-module for Kubernetes is large: leave it out with MENDER_APP_PROGRAMS.
MENDER_APP_PROGRAMS ?= "app docker-compose mender-app k8s"
MENDER_APP_MAKE = "GO=${GO} GOFLAGS=-mod=vendor GOPROXY=off GOTOOLCHAIN=local \
    PROGRAMS='${MENDER_APP_PROGRAMS}' DESTDIR=${D} prefix=${prefix} sysconfdir=${sysconfdir}"

do_compile() {
    export TMPDIR="${GOTMPDIR}"
    oe_runmake -C ${S}/src/${GO_IMPORT} ${MENDER_APP_MAKE} cross-${MENDER_APP_ARCH}
}

do_install() {
    oe_runmake -C ${S}/src/${GO_IMPORT} ${MENDER_APP_MAKE} install \
        FROM=build/linux-${MENDER_APP_ARCH} SUBMODULES='deb systemd python executable'
    mender_app_adjust
}
