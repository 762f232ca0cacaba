# The release's own static programs: for branches whose Go is too old for the sources, and
# for who wants the bytes that the release is signed for.
require mender-app.inc

SRC_URI = "${MENDER_APP_RELEASE}/mender-app-${MENDER_APP_VERSION}-linux-${MENDER_APP_ARCH}.tar.gz;subdir=${BP}"
SRC_URI[sha256sum] = "${@d.getVar('MENDER_APP_SUM_' + (d.getVar('MENDER_APP_ARCH') or '').replace('-', '')) or ''}"
S = "${@d.getVar('UNPACKDIR') or d.getVar('WORKDIR')}/${BP}"
LIC_FILES_CHKSUM = "file://usr/share/doc/mender-app/LICENSE;md5=175792518e4ac015ab6696d16c4f607e"

do_configure[noexec] = "1"
do_compile[noexec] = "1"

do_install() {
    cp -R --no-dereference --preserve=mode,links ${S}/. ${D}/
    rm -f ${D}${bindir}/app-gen ${D}${bindir}/app-conformance ${D}${mandir}/man1/app-*
    mender_app_adjust
}

RPROVIDES:${PN} = "mender-app"
RPROVIDES:${PN}-k8s = "mender-app-k8s"
RCONFLICTS:${PN} += "mender-app"
INHIBIT_PACKAGE_STRIP = "1"
INHIBIT_SYSROOT_STRIP = "1"
