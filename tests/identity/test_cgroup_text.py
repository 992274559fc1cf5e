# ruff: noqa: E501 -- the texts are shown as the kernel writes them, a path on a line
"""What a process's cgroup text means, on every combination of cgroup version, driver, runtime and nesting."""

import time
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import Reason
from exporter.model import ContainerRef, Place
from exporter.sources.cgroups import parse
from simulator.cgroupfs import ContainerCgroup, Driver, QoS, Runtime

HOST = Place()
UNREADABLE = Place(reason=Reason.CGROUP_UNREADABLE)
RELATIVE = Place(reason=Reason.CGROUP_RELATIVE)
AMBIGUOUS = Place(reason=Reason.CGROUP_AMBIGUOUS)

UID = "4a163a05-439d-484b-8e53-2968bc15824f"
OTHER_UID = "eab5a334-93fe-48a8-b139-9e8079c1f163"
STATIC_UID = "6576683a93d91d8e2119df2c2755f2f1"
ID = "0123456789abcdef" * 4
OTHER_ID = "fedcba9876543210" * 4


def container(pod_uid, container_id):
    return Place(container=ContainerRef(pod_uid, container_id=container_id))


CASES = [
    (
        "C01",
        "10:cpuset:/kubepods/pod5eadac96-ab58-11ea-b82b-0242ac110009/7fe41c8a2d1da09420117894f11dd91f6c3a44dfeb7d125dc594bd53468861df\n",
        container(
            "5eadac96-ab58-11ea-b82b-0242ac110009", "7fe41c8a2d1da09420117894f11dd91f6c3a44dfeb7d125dc594bd53468861df"
        ),
    ),
    (
        "C02",
        "11:blkio:/kubepods/burstable/podf6adb0af-0855-4bab-b25b-c853f18d0ce2/35b97177dada20362ab90d90ac63cd54e8a41cf87bea34f270631b6da17f4a93\n",
        container(
            "f6adb0af-0855-4bab-b25b-c853f18d0ce2", "35b97177dada20362ab90d90ac63cd54e8a41cf87bea34f270631b6da17f4a93"
        ),
    ),
    (
        "C03",
        "6:pids:/kubepods/besteffort/pod26ab26cd-6409-443f-a13c-fd6c231207c8/ae7a1981e064c217035e0b23979c8defd51c850d1af26fbcf148187e5b0da61c\n",
        container(
            "26ab26cd-6409-443f-a13c-fd6c231207c8", "ae7a1981e064c217035e0b23979c8defd51c850d1af26fbcf148187e5b0da61c"
        ),
    ),
    (
        "C04",
        "9:freezer:/kubepods.slice/kubepods-pod22949dce_fd8b_11ea_8ede_98f2b32c645c.slice/docker-b15a5bdedd2e7645c3be271364324321b908314e4c77857bbfd32a041148c07f.scope\n",
        container(
            "22949dce-fd8b-11ea-8ede-98f2b32c645c", "b15a5bdedd2e7645c3be271364324321b908314e4c77857bbfd32a041148c07f"
        ),
    ),
    (
        "C06",
        "12:hugetlb:/kubepods.slice/kubepods-pod019c1fe8_0d92_4aa0_b61c_4df58bdde71c.slice/cri-containerd-9e073649debeec6d511391c9ec7627ee67ce3a3fb508b0fa0437a97f8e58ba98.scope\n",
        container(
            "019c1fe8-0d92-4aa0-b61c-4df58bdde71c", "9e073649debeec6d511391c9ec7627ee67ce3a3fb508b0fa0437a97f8e58ba98"
        ),
    ),
    (
        "C07",
        "1:name=systemd:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podd0511cd2_29d2_4215_be0f_f77bc0609d99.slice/crio-f93ee491b8ed2680d5a909eb098b14a9430173b57ca1c4efedd8768566d67e8e.scope\n",
        container(
            "d0511cd2-29d2-4215-be0f-f77bc0609d99", "f93ee491b8ed2680d5a909eb098b14a9430173b57ca1c4efedd8768566d67e8e"
        ),
    ),
    (
        "C08",
        (
            "12:hugetlb:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda2830d0d_b0f0_4ff0_81b5_0ee4e299cf80.slice/crio-09bc3d7ade839efec32b6bec4ec79d099027a668ddba043083ec21d3c3b8f1e6.scope\n"
            "11:netcls,net_prio:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda2830d0d_b0f0_4ff0_81b5_0ee4e299cf80.slice/crio-09bc3d7ade839efec32b6bec4ec79d099027a668ddba043083ec21d3c3b8f1e6.scope\n"
            "3:rdma:/\n"
            "0::/system.slice/crio.service\n"
        ),
        container(
            "a2830d0d-b0f0-4ff0-81b5-0ee4e299cf80", "09bc3d7ade839efec32b6bec4ec79d099027a668ddba043083ec21d3c3b8f1e6"
        ),
    ),
    (
        "C09",
        "0::/kubepods/pod51b64565-2b17-4d46-83ac-22e398f2f7fb/65d752a38e1db784d521f48c3f1956f4f9a74ebb923377144f253f3aca9fa028\n",
        container(
            "51b64565-2b17-4d46-83ac-22e398f2f7fb", "65d752a38e1db784d521f48c3f1956f4f9a74ebb923377144f253f3aca9fa028"
        ),
    ),
    (
        "C10",
        "0::/kubepods/burstable/pod5a89bcaa-3509-4375-83e1-b9e7a5712123/a069581483b00a498b3ba172612ffed06b3275a043bf3895c1b19e783e2793ee\n",
        container(
            "5a89bcaa-3509-4375-83e1-b9e7a5712123", "a069581483b00a498b3ba172612ffed06b3275a043bf3895c1b19e783e2793ee"
        ),
    ),
    (
        "C12",
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poddde1244b_5bb5_4297_b544_85f3bc0d80bf.slice/cri-containerd-acb62391578595ec849d87d8556369cee7f935f0425097fd5f870df0e8aabd3c.scope\n",
        container(
            "dde1244b-5bb5-4297-b544-85f3bc0d80bf", "acb62391578595ec849d87d8556369cee7f935f0425097fd5f870df0e8aabd3c"
        ),
    ),
    (
        "C13",
        "0::/kubepods.slice/kubepods-pod7922aa99_d4aa_4885_a953_82976860b23a.slice/crio-1c33afbc9e5aa6c69150d1af05254b562a4b17c313fc6153e3625cf456922bfe.scope\n",
        container(
            "7922aa99-d4aa-4885-a953-82976860b23a", "1c33afbc9e5aa6c69150d1af05254b562a4b17c313fc6153e3625cf456922bfe"
        ),
    ),
    (
        "C14",
        "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poddbdd9718_6f63_40ef_987e_34776599d7d6.slice/crio-bdf2eeede4551b27acbbb05fb1b4f61925786681734bf128e68d39e17d115098.scope\n",
        container(
            "dbdd9718-6f63-40ef-987e-34776599d7d6", "bdf2eeede4551b27acbbb05fb1b4f61925786681734bf128e68d39e17d115098"
        ),
    ),
    (
        "C15",
        "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poddbdd9718_6f63_40ef_987e_34776599d7d6.slice/crio-bdf2eeede4551b27acbbb05fb1b4f61925786681734bf128e68d39e17d115098.scope/container\n",
        container(
            "dbdd9718-6f63-40ef-987e-34776599d7d6", "bdf2eeede4551b27acbbb05fb1b4f61925786681734bf128e68d39e17d115098"
        ),
    ),
    (
        "C16",
        "0::/kubepods/besteffort/pod897277d4-5e6f-4999-a976-b8340e8d075e/crio-a4d6b686848a610472a2eed3ae20d4d64b6b4819feb9fdfc7fd7854deaf59ef3\n",
        container(
            "897277d4-5e6f-4999-a976-b8340e8d075e", "a4d6b686848a610472a2eed3ae20d4d64b6b4819feb9fdfc7fd7854deaf59ef3"
        ),
    ),
    (
        "C18",
        "0::/system.slice/crio-conmon-eb5a56051cf7c5e9e588d0dca94d6673d67d43604686e1485984732b18701057.scope\n",
        HOST,
    ),
    (
        "C19",
        "11:pids:/system.slice/containerd.service/kubepods-burstable-podb4f3dfaf_f987_499d_a04c_2c60eb01958c.slice:cri-containerd:f659de946112140fd722cddfd24015a8c9fce51b7ab7f007ac30612b6f9acfc9\n",
        container(
            "b4f3dfaf-f987-499d-a04c-2c60eb01958c", "f659de946112140fd722cddfd24015a8c9fce51b7ab7f007ac30612b6f9acfc9"
        ),
    ),
    (
        "C20",
        "4:pids:/podruntime.slice/containerd.service/kubepods-burstable-pod29349498_197c_4919_b13f_9a928e7d001b.slice:cri-containerd:0ca2b3cd20e5f55a2bbe8d4aa3f811cf7963b40f0542ad147054b0fcb60fc400\n",
        container(
            "29349498-197c-4919-b13f-9a928e7d001b", "0ca2b3cd20e5f55a2bbe8d4aa3f811cf7963b40f0542ad147054b0fcb60fc400"
        ),
    ),
    (
        "C21",
        "0::/kubepods-besteffort-pod72f7f152_440c_66ac_9084_e0fc1d8a910c.slice:cri-containerd:b2a102854b4969b2ce98dc329c86b4fb2b06e4ad2cc8da9d8a7578c9cd2004a2\n",
        container(
            "72f7f152-440c-66ac-9084-e0fc1d8a910c", "b2a102854b4969b2ce98dc329c86b4fb2b06e4ad2cc8da9d8a7578c9cd2004a2"
        ),
    ),
    (
        "C22",
        "13:memory:/system.slice/containerd.service/kubepods-besteffort-pod0043435f_1854_4327_b76b_730f681a781d.slice:cri-containerd:01fd96f7ad292b02a8317cde4ecb8c7ef3cc06ffdd113f13410e0837eb2b2a20\n",
        container(
            "0043435f-1854-4327-b76b-730f681a781d", "01fd96f7ad292b02a8317cde4ecb8c7ef3cc06ffdd113f13410e0837eb2b2a20"
        ),
    ),
    (
        "C24",
        "0::/system.slice/docker-fd9d0ea06257a9780827cbc7fd92e3812a54fca26d63e191b73610d5d48b9cbd.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podeab5a334_93fe_48a8_b139_9e8079c1f163.slice/cri-containerd-99f3a16ea25b7724cb56a4f0c0df1113ad9474fbf5545bead97fd5c7f61c13f4.scope\n",
        container(
            "eab5a334-93fe-48a8-b139-9e8079c1f163", "99f3a16ea25b7724cb56a4f0c0df1113ad9474fbf5545bead97fd5c7f61c13f4"
        ),
    ),
    (
        "C25",
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podc6a7bc8c_2ae5_4b89_a872_4c5a250d5ac8.slice/cri-containerd-0f76e495864f2ec6f05be687d1375e2754b1ffc6265b4f7fae497aad46952205.scope\n",
        container(
            "c6a7bc8c-2ae5-4b89-a872-4c5a250d5ac8", "0f76e495864f2ec6f05be687d1375e2754b1ffc6265b4f7fae497aad46952205"
        ),
    ),
    (
        "C26",
        "0::/system.slice/docker-c1146e7ccca9ab4436abd69923c07d097b37b762ed21cc3f24584c2f84e77c57.scope/kubelet/kubepods/burstable/pod09a70ae9ccc491e651e5c773579b3490/b0e6aa50e847c3d3b1880e307ec7996040275c8063832cffc9274defce2cb655\n",
        container(
            "09a70ae9ccc491e651e5c773579b3490", "b0e6aa50e847c3d3b1880e307ec7996040275c8063832cffc9274defce2cb655"
        ),
    ),
    (
        "C27",
        "0::/system.slice/docker-1b3319ed9c1d4cca681f9c102da9b015555785b6240c4e4619f11b535cabdc07.scope/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podeb653d22_2525_47ca_9fc4_3762497ae1d2.slice/docker-84e9ffffe97fea4c5a0f01d401611cbafbf7e559fc6190ed74abfc2b25e889d4.scope\n",
        container(
            "eb653d22-2525-47ca-9fc4-3762497ae1d2", "84e9ffffe97fea4c5a0f01d401611cbafbf7e559fc6190ed74abfc2b25e889d4"
        ),
    ),
    (
        "C28",
        "0::/system.slice/docker-1b3319ed9c1d4cca681f9c102da9b015555785b6240c4e4619f11b535cabdc07.scope/init.scope\n",
        HOST,
    ),
    (
        "C30",
        "10:devices:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2c48913c-b29f-11e7-9350-020968147796.slice/docker-9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961.scope\n",
        container(
            "2c48913c-b29f-11e7-9350-020968147796", "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
        ),
    ),
    (
        "C31",
        "0::/kubepods/pod2c48913c_b29f_11e7_9350_020968147796/9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961\n",
        container(
            "2c48913c-b29f-11e7-9350-020968147796", "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
        ),
    ),
    (
        "C32",
        "0::/kubepods/burstable/podb53dfa9e2dc9b890f7fadb2770857b03/bb959773d06ad1a07d469bced637bbc49b6f8573c493fd0548d7f5810eb3e5a8\n",
        container(
            "b53dfa9e2dc9b890f7fadb2770857b03", "bb959773d06ad1a07d469bced637bbc49b6f8573c493fd0548d7f5810eb3e5a8"
        ),
    ),
    (
        "C33",
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7260904bbd08e72e4dff95d9fccd2ee8.slice/cri-containerd-d36686f9785534531160dc936aec9d711a26eb37f4fc7752a2ae27d0a24345c1.scope\n",
        container(
            "7260904bbd08e72e4dff95d9fccd2ee8", "d36686f9785534531160dc936aec9d711a26eb37f4fc7752a2ae27d0a24345c1"
        ),
    ),
    (
        "C34",
        "0::/../../pod2c48913c-b29f-11e7-9350-020968147796/9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961\n",
        container(
            "2c48913c-b29f-11e7-9350-020968147796", "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
        ),
    ),
    (
        "C36",
        "0::/../../../kubepods-pod4a163a05_439d_484b_8e53_2968bc15824f.slice/cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope\n",
        container(
            "4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        ),
    ),
    (
        "C37",
        "0::/../../kubepods-besteffort-pod4a163a05_439d_484b_8e53_2968bc15824f.slice/cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope\n",
        container(
            "4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        ),
    ),
    (
        "C39",
        "0::/../crio-45490e76e0878aaa4d9808f7d2eefba37f093c3efbba9838b6d8ab804d9bd814.scope\n",
        container("", "45490e76e0878aaa4d9808f7d2eefba37f093c3efbba9838b6d8ab804d9bd814"),
    ),
    (
        "C40",
        "0::/../0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n",
        container("", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
    ),
    ("C41", "0::/\n", HOST),
    ("C42", "0::/../../../../../system.slice/containerd.service\n", HOST),
    ("C43", "0::/../../../..\n", HOST),
    (
        "C44",
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod4a163a05_439d_484b_8e53_2968bc15824f.slice/cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope (deleted)\n",
        container(
            "4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        ),
    ),
    (
        "C45",
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod4a163a05_439d_484b_8e53_2968bc15824f.slice/cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope/init.scope\n",
        container(
            "4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        ),
    ),
    (
        "C47",
        (
            "9:name=systemd:/kubepods/burstable/podb53dfa9e2dc9b890f7fadb2770857b03/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
            "8:pids:/kubepods/burstable/podb53dfa9e2dc9b890f7fadb2770857b03/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef/job_1\n"
            "7:blkio:/kubepods/burstable/podb53dfa9e2dc9b890f7fadb2770857b03/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
        ),
        container(
            "b53dfa9e2dc9b890f7fadb2770857b03", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        ),
    ),
    (
        "C48",
        "0::/kubepods/burstable/pod4a163a05-439d-484b-8e53-2968bc15824f/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef/docker/fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210\n",
        container(
            "4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        ),
    ),
    (
        "C49",
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod4a163a05_439d_484b_8e53_2968bc15824f.slice/cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope/docker/fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210\n",
        container(
            "4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        ),
    ),
    ("C50", "0::/docker/fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210\n", HOST),
    (
        "C51",
        "0::/kubepods/burstable/pod4a163a05-439d-484b-8e53-2968bc15824f/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef/libpod_parent/libpod-fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210\n",
        container(
            "4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        ),
    ),
    (
        "C52",
        "0::/machine.slice/libpod-06dc5f321aad8726aa26559f16ec203bc099245bc44894b14a89fc02b022d1d5.scope/container\n",
        HOST,
    ),
    (
        "C54",
        "0::/system.slice/kepler.service/libpod-payload-8e363eb2287da4ccc9f52ffc5de11252ac5fe707e3ddb917a3c0bdf9bb64165b\n",
        HOST,
    ),
    (
        "C55",
        "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda8507382_5d59_4c0a_8119_c6651b541881.slice/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n",
        container("a8507382-5d59-4c0a-8119-c6651b541881", ""),
    ),
    (
        "C56",
        "0::/kubepods/pod4a163a05-439d-484b-8e53-2968bc15824f/docker/fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210\n",
        container("4a163a05-439d-484b-8e53-2968bc15824f", ""),
    ),
    (
        "C57",
        "0::/kubepods.slice/kubepods-poddc430cd3_34b7_4ea6_be26_ddfd88d7ddff.slice/cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope\n",
        container(
            "dc430cd3-34b7-4ea6-be26-ddfd88d7ddff", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        ),
    ),
    ("C58", "0::/kata_overhead/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", HOST),
    (
        "C60",
        "1:name=systemd:/kubepods/besteffort/pode9b90526-f47d-11e8-b2a5-080027b9f4fb/15aa6e53-b09a-40c7-8558-c6c31e36c88a\n",
        container("e9b90526-f47d-11e8-b2a5-080027b9f4fb", "15aa6e53-b09a-40c7-8558-c6c31e36c88a"),
    ),
    ("C61", "0::/system.slice/ssh.service\n", HOST),
    ("C62", "0::/system.slice/containerd.service\n", HOST),
    ("C63", "12:devices:/docker/051e2ee0bce99116029a13df4a9e943137f19f957f38ac02d6bad96f9b700f76\n", HOST),
    ("C64", "1:name=systemd:/ecs/34dc0b5e626f2c5c4c5170e34b10e765-1234567890\n", HOST),
    ("C65", "0::/actions_job/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", HOST),
    (
        "C67",
        "0::/kubepods/besteffort/pod4a163a05-439d-484b-8e53-2968bc15824f\n",
        container("4a163a05-439d-484b-8e53-2968bc15824f", ""),
    ),
    (
        "C68",
        "0::/kubepods/pod4a163a05-439d-484b-8e53-2968bc15824f/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef/docker/fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210/kubelet/kubepods/besteffort/podeab5a334-93fe-48a8-b139-9e8079c1f163/00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff\n",
        container(
            "4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        ),
    ),
    (
        "C70",
        "0::/system.slice/run-containerd-io.containerd.runtime.v2.task-k8s.io-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef-rootfs.mount\n",
        HOST,
    ),
    ("C71", "", UNREADABLE),
]
BY_NUMBER = {number: (text, expected) for number, text, expected in CASES}
NUMBERED = pytest.mark.parametrize(("text", "expected"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])


@NUMBERED
def test_text_gives_the_place(text, expected):
    assert parse(text) == expected
    assert parse(text.encode()) == expected


@NUMBERED
def test_missing_line_end_changes_nothing(text, expected):
    assert parse(text.removesuffix("\n")) == expected


@NUMBERED
def test_removed_cgroup_keeps_the_place(text, expected):
    lines = [line.removesuffix(" (deleted)") for line in text.splitlines()]
    assert parse("".join(f"{line} (deleted)\n" for line in lines)) == expected


@NUMBERED
def test_line_order_changes_nothing(text, expected):
    for lines in permutations(text.splitlines(keepends=True)):
        assert parse("".join(lines)) == expected


@NUMBERED
def test_same_path_in_many_hierarchies_is_one_place(text, expected):
    assert parse(text + text.replace("0::", "3:cpu,cpuacct:")) == expected


# A reader at the root of its own cgroup namespace sees itself as `/` and others relative to itself.


@pytest.mark.parametrize("number", ["C34", "C36", "C37", "C39", "C40", "C42", "C43"])
def test_relative_paths_mean_the_same_in_a_private_cgroup_namespace(number):
    text, expected = BY_NUMBER[number]
    assert parse(text, private_cgroupns=True) == expected


@pytest.mark.parametrize(
    "text",
    [
        "0::/\n",  # C41
        "0::/init.scope\n",
        "0::/docker/" + OTHER_ID + "\n",  # C50: made by a container engine inside our own container
        f"0::/kubepods/pod{UID}/{ID}\n",  # likewise: a cluster inside our own container
        "0::/..\n",
        "0::/../job_7\n",
    ],
)
def test_own_container_is_unresolved_in_a_private_cgroup_namespace(text):
    assert parse(text, private_cgroupns=True) == RELATIVE


def test_colon_form_below_a_relative_path():
    text = f"0::/../kubepods-besteffort-pod{UID.replace('-', '_')}.slice:cri-containerd:{ID}\n"
    assert parse(text, private_cgroupns=True) == container(UID, ID)


# Bug reports that are not in the table above.


def test_b50_static_pod():
    assert parse(f"0::/kubepods/besteffort/pod{STATIC_UID}/{ID}\n") == container(STATIC_UID, ID)


def test_b52_container_below_its_runtime_shows_its_id_only():
    assert parse(f"0::/system.slice/containerd.service/{ID}\n") == container("", ID)


def test_k25_podman_split_cgroups_are_the_hosts():
    for part in ("libpod-payload", "libpod-conmon"):
        assert parse(f"0::/system.slice/web.service/{part}-{ID}\n") == HOST


def test_k34_short_container_id():
    slice_ = f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
    assert parse(f"0::/{slice_}/docker-{ID[:12]}.scope\n") == container(UID, ID[:12])


def test_k35_kubepods_twice():
    assert parse(f"0::/kubepods/kubepods/besteffort/pod{UID}/{ID}\n") == container(UID, ID)


def test_k37_relative_pod_path():
    assert parse(f"0::/../../../burstable/pod{UID}/{ID}\n", private_cgroupns=True) == container(UID, ID)


@pytest.mark.parametrize("below", ["", "/container", "/init.scope"])
def test_k46_conmon_in_the_pod_is_no_container(below):
    slice_ = f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
    assert parse(f"0::/{slice_}/crio-conmon-{ID}.scope{below}\n") == container(UID, "")


# Laws.

PATHS = st.builds(
    ContainerCgroup,
    st.uuids().map(str) | st.uuids().map(lambda uid: uid.hex),
    container_id=st.text("0123456789abcdef", min_size=64, max_size=64),
    driver=st.sampled_from(Driver),
    qos=st.sampled_from(QoS),
    runtime=st.sampled_from(Runtime),
)
# The kernel forbids line ends in the names of cgroups, and nothing else that matters here.
SEGMENT = st.text(st.characters(exclude_characters="\n/\0", exclude_categories=["Cs"]), min_size=1) | st.sampled_from(
    [
        f"pod{OTHER_UID}",
        f"kubepods-pod{OTHER_UID.replace('-', '_')}.slice",
        f"kubepods-pod{OTHER_UID.replace('-', '_')}.slice:cri-containerd:{OTHER_ID}",
        f"cri-containerd-{OTHER_ID}.scope",
        OTHER_ID,
        "containerd.service",
        "..",
        "0::",
        "x (deleted)",
        "a\rb",
        "a\x0bb",
        "a\u2028b",
    ]
)
SUFFIX = st.lists(SEGMENT, min_size=1, max_size=6).map(lambda names: "/" + "/".join(names))


@pytest.mark.parametrize(("driver", "qos", "runtime"), list(product(Driver, QoS, Runtime)))
@pytest.mark.parametrize("uid", [UID, STATIC_UID])
def test_every_driver_class_and_runtime(driver, qos, runtime, uid):
    cgroup = ContainerCgroup(uid, ID, driver=driver, qos=qos, runtime=runtime)
    assert parse(cgroup.text) == container(uid, ID)
    assert parse(cgroup.text_v1) == container(uid, ID)
    assert parse(f"0::{cgroup.pod_path}\n") == container(uid, "")


@given(cgroup=PATHS, suffix=SUFFIX)
def test_what_a_workload_makes_below_its_container_changes_nothing(cgroup, suffix):
    assert parse(f"0::{cgroup.path}{suffix}\n") == container(cgroup.pod_uid, cgroup.container_id)


@given(suffix=SUFFIX)
def test_what_a_workload_of_our_own_pod_makes_changes_nothing(suffix):
    assert parse(f"0::/../{ID}{suffix}\n", private_cgroupns=True) == container("", ID)


@given(suffix=SUFFIX)
def test_what_is_made_below_our_own_container_names_no_pod(suffix):
    if suffix.startswith("/.."):
        return  # no path inside our own cgroup
    assert parse(f"0::{suffix}\n", private_cgroupns=True) == RELATIVE


@given(cgroups=st.lists(PATHS | SUFFIX, min_size=1, max_size=5), data=st.data(), private=st.booleans())
def test_shuffled_lines_change_nothing(cgroups, data, private):
    paths = [cgroup if isinstance(cgroup, str) else cgroup.path for cgroup in cgroups]
    lines = [f"{number}:cpu:{path}\n" for number, path in enumerate(paths)]
    shuffled = data.draw(st.permutations(lines))
    assert parse("".join(shuffled), private_cgroupns=private) == parse("".join(lines), private_cgroupns=private)


@given(first=PATHS, second=PATHS, suffix=SUFFIX)
def test_lines_of_two_pods_are_ambiguous(first, second, suffix):
    if first.pod_uid == second.pod_uid:
        return
    assert parse(f"2:cpu:{first.path}{suffix}\n0::{second.path}\n") == AMBIGUOUS


def test_two_containers_of_one_pod_are_the_pod():
    assert parse(f"2:cpu:/kubepods/pod{UID}/{ID}\n0::/kubepods/pod{UID}/{OTHER_ID}\n") == container(UID, "")


def test_two_containers_of_no_known_pod_are_ambiguous():
    assert parse(f"2:cpu:/../{ID}\n0::/../{OTHER_ID}\n") == AMBIGUOUS


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1e", "\x85", "\u2028"])
def test_workload_cannot_forge_a_line(end):
    assert parse(f"0::/kubepods/pod{UID}/{ID}/x{end}0::/kubepods/pod{OTHER_UID}/{OTHER_ID}\n") == container(UID, ID)


@pytest.mark.parametrize(
    "name", ["libpod{}", "podman-{}", "podruntime{}.slice", "pod{}x", "pod{}.slice.d", "pod{}.scope"]
)
def test_name_that_holds_pod_is_no_pod(name):
    assert parse(f"0::/machine.slice/{name.format(UID)}/{ID}\n") == HOST


@given(text=st.text() | st.binary())
def test_any_text_has_a_place(text):
    assert isinstance(parse(text), Place)
    assert isinstance(parse(text, private_cgroupns=True), Place)


@pytest.mark.parametrize("text", ["", "\n", "0:\n", "garbage", "0::relative\n", "\0\0\0", b"\xff\xfe:\xff:\xff"])
def test_text_without_a_path_is_unreadable(text):
    assert parse(text) == UNREADABLE


@pytest.mark.parametrize(
    "unit",
    [
        "pod",
        "-pod",
        f"-pod{UID}",
        f"-pod{UID}.slice:",
        f"pod{UID}.slice:a:",
        "a-",
        "a:",
        "../",
        "/",
        "0::/\n",
        f"{ID}-",
        " (deleted)",
    ],
)
def test_hostile_text_takes_linear_time(unit):
    def seconds(size):
        text = "0::/" + unit * (size // len(unit))
        began = time.process_time()
        for _ in range(3):
            parse(text)
        return time.process_time() - began

    # A quadratic reading of 1 MiB takes minutes; a linear one takes some tens of milliseconds.
    assert seconds(1 << 20) < 5
