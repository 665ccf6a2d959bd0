class Program_weight_tensor_meta_tanh:
    name = "tanh"
    original_name = "tanh"
    shape = [5, 3]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.4515432119369507
    std = 0.317745178937912
    data = [0.04036401957273483, -0.6183404326438904, -0.8213521838188171, -0.3472751975059509, -0.3699221909046173, -0.9058458805084229, -0.7301564812660217, 0.029129279777407646, -0.3732331693172455, -0.22161531448364258, -0.732277512550354, -0.8317966461181641, -0.04626298323273659, -0.3083716630935669, -0.5361917018890381]


class Program_weight_tensor_meta_fc_weight:
    name = "fc_weight"
    original_name = "fc.weight"
    shape = [3, 4]
    dtype = "torch.float32"
    device = "cpu"
    mean = 0.13449886441230774
    std = 0.24946250021457672
    data = [0.2700761556625366, -0.3405742049217224, 0.37093016505241394, 0.37590378522872925, -0.27481186389923096, 0.3941403925418854, 0.07361803948879242, 0.027750186622142792, 0.1299857646226883, 0.4024297595024109, 0.11313071101903915, 0.07140754163265228]


class Program_weight_tensor_meta_add_1:
    name = "add_1"
    original_name = "add_1"
    shape = [5, 4]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.7441932559013367
    std = 1.1505544185638428
    data = [-1.5351054668426514, -1.8073389530181885, -1.1387972831726074, 1.4290046691894531, -3.173750877380371, -2.149075508117676, -0.6195967793464661, 0.7130166292190552, -1.4428036212921143, 0.20100367069244385, -0.9622746706008911, 0.42910832166671753, -0.967263400554657, -1.866403579711914, -1.1291379928588867, 0.2510448098182678, -1.2112672328948975, -0.7258709669113159, -0.014574289321899414, 0.8362171053886414]


class Program_weight_tensor_meta_ids:
    name = "ids"
    original_name = "ids"
    shape = [5]
    dtype = "torch.int64"
    device = "cpu"
    mean = None
    std = None
    data = [0, 3, 6, 3, 1]


class Program_weight_tensor_meta_tangent_output_logits:
    name = "tangent_output_logits"
    original_name = "output.logits"
    shape = [5, 3]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.16621097922325134
    std = 1.0648784637451172
    data = [-1.127929925918579, -0.1445312798023224, 0.6132813692092896, 0.7666017413139343, -0.002929688198491931, -1.5117191076278687, -1.7412112951278687, -1.9042973518371582, 0.027343757450580597, 0.20214848220348358, 0.9267580509185791, -1.006836175918579, 1.220703363418579, -0.10449220985174179, 1.2939456701278687]


class Program_weight_tensor_meta_tangent_output_loss:
    name = "tangent_output_loss"
    original_name = "output.loss"
    shape = []
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.5449219942092896
    std = 0.0
    data = [-0.5449219942092896]


class Program_weight_tensor_meta_constant_0:
    name = "constant_0"
    original_name = "backward.constant_0"
    shape = [3]
    dtype = "torch.float32"
    device = "cpu"
    mean = 1.1666666269302368
    std = 0.7637625932693481
    data = [0.5, 1.0, 2.0]
